require('node:fs').writeFileSync(require('node:path').join(__dirname, 'SCRIPT_RAN'), 'yes')
