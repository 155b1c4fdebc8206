#!/usr/bin/env node
const { serve, tool } = require('tiny-mcp')
serve('several', [tool('real')])
