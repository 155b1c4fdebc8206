#!/usr/bin/env node
// Wants an argument.
const fs = require('node:fs')
const { serve, tool } = require('tiny-mcp')
const folder = process.argv[2]
if (!folder) { console.error('Usage: needs-folder-mcp <vault-directory>'); process.exit(1) }
if (!fs.statSync(folder).isDirectory()) { console.error('That is no directory'); process.exit(1) }
serve('vault', [tool('read_note')])
