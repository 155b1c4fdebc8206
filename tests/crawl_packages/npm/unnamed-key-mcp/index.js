#!/usr/bin/env node
// Does not say which variable it misses.
const { serve, tool } = require('tiny-mcp')
const token = process.env.HIDDEN_SERVICE_TOKEN
if (!token) { console.error('Missing API credentials. See the README.'); process.exit(1) }
serve('unnamed', [tool('search')])
