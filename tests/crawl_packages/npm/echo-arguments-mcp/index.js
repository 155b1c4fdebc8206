#!/usr/bin/env node
// Says what it was started with, as a foreign server could write it down.
const { serve, tool } = require('tiny-mcp')
serve('echo', [tool('echo', `Started with ${JSON.stringify(process.argv.slice(2))}`)])
