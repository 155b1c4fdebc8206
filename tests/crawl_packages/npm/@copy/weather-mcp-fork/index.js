#!/usr/bin/env node
const { serve, tool } = require('tiny-mcp')
serve('weather-fork', [tool('history'), tool('forecast')])
