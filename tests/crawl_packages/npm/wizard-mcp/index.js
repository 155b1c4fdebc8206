#!/usr/bin/env node
// Nothing but a wizard.
process.stdout.write('? Would you like to configure Cursor? (y/n) ')
process.stdin.on('data', (data) => { if (/^y/i.test(data)) process.exit(0) })
