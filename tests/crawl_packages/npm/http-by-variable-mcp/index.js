#!/usr/bin/env node
// Speaks HTTP unless a variable says otherwise.
const { serve, tool } = require('tiny-mcp')
if (process.env.MCP_TRANSPORT === 'stdio') serve('routes', [tool('route')])
else require('node:http').createServer((_, answer) => answer.end()).listen(3123, '127.0.0.1', () => console.error('MCP server listening on http://localhost:3123/mcp'))
