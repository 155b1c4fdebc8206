#!/usr/bin/env node
// Names a newer Node.js than there is, and runs all the same.
const { serve, tool } = require('tiny-mcp')
serve('engines', [tool('turn')])
