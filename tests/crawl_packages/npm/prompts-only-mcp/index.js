#!/usr/bin/env node
const { serve } = require('tiny-mcp')
serve('prompts', [], { capabilities: { prompts: {} }, list: (_, reply, refuse) => refuse(-32601, 'Method not found') })
