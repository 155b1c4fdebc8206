#!/usr/bin/env node
// Keeps its data in its own folder.
const fs = require('node:fs')
const path = require('node:path')
const { serve, tool } = require('tiny-mcp')
fs.mkdirSync(path.join(__dirname, 'data'), { recursive: true })
fs.writeFileSync(path.join(__dirname, 'data', 'store.json'), '{}')
serve('store', [tool('remember')])
