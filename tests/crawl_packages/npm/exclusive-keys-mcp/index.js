#!/usr/bin/env node
// Wants one of two variables, never both.
const { serve, tool } = require('tiny-mcp')
const { VECTOR_URL, VECTOR_LOCAL_PATH } = process.env
if (!VECTOR_URL && !VECTOR_LOCAL_PATH) { console.error('Either VECTOR_URL or VECTOR_LOCAL_PATH must be set'); process.exit(1) }
if (VECTOR_URL && VECTOR_LOCAL_PATH) { console.error('VECTOR_URL and VECTOR_LOCAL_PATH are mutually exclusive: set only one'); process.exit(1) }
serve('vectors', [tool('store'), tool('find')])
