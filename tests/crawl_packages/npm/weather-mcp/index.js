#!/usr/bin/env node
const { serve, tool } = require('tiny-mcp')
serve('weather', [tool('forecast'), tool('history')], { capabilities: { tools: {}, prompts: {} } })
