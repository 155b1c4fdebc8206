#!/usr/bin/env node
// Speaks HTTP unless its option --transport says otherwise.
const { serve, tool } = require('tiny-mcp')
const at = process.argv.indexOf('--transport')
if (at > 0 && process.argv[at + 1] === 'stdio') serve('tiles', [tool('tile')])
else require('node:http').createServer((_, answer) => answer.end()).listen(3123, '127.0.0.1', () => console.error('MCP server listening on http://localhost:3123/mcp'))
