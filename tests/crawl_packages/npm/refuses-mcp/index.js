#!/usr/bin/env node
const { serve } = require('tiny-mcp')
serve('refuses', [], { initialize: (_, refuse) => refuse(-32000, 'Not today') })
