#!/usr/bin/env node
// Asks its service for the list of tools.
const { serve } = require('tiny-mcp')
serve('remote', [], {
  list: async (_, reply, refuse) => {
    try { reply({ tools: await (await fetch('https://tools.example.invalid/')).json() }) }
    catch (error) { refuse(-32603, `fetch failed: ${error.cause?.code}`) }
  },
})
