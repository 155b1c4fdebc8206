#!/usr/bin/env node
// Speaks HTTP, whatever it is told.
require('node:http').createServer((_, answer) => answer.end()).listen(3123, '127.0.0.1', () => console.error('MCP server listening on http://localhost:3123/mcp'))
