#!/usr/bin/env node
const { serve, tool } = require('tiny-mcp')
serve('one', [tool('a', ''), tool('b', '')])
