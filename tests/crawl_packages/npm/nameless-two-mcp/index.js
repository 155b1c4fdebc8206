#!/usr/bin/env node
const { serve, tool } = require('tiny-mcp')
serve('two', [tool('c', ''), tool('d', '')])
