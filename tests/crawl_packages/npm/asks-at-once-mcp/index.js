#!/usr/bin/env node
// Asks its service before it answers anything.
const { serve } = require('tiny-mcp')
serve('asks', [], {
  initialize: async (_, refuse) => {
    try { await fetch('https://tools.example.invalid/') }
    catch (error) { refuse(-32603, `Failed to initialize: fetch failed (${error.cause?.code})`) }
  },
})
