#!/usr/bin/env node
// Registers its tools after the handshake.
const { serve, tool } = require('tiny-mcp')
let ready = false
setTimeout(() => { ready = true }, 500)
serve('late', [], { list: (_, reply) => reply({ tools: ready ? [tool('late')] : [] }) })
