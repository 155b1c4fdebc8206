#!/usr/bin/env node
// A command line program that is a server on demand.
const { serve, tool } = require('tiny-mcp')
if (process.argv[2] === 'serve') serve('deeds', [tool('list_deeds')])
else {
  console.error('Usage: subcommand-mcp <command>\n\nCommands:\n  install     Write the configuration of an editor\n  serve       Run the MCP server')
  process.exit(1)
}
