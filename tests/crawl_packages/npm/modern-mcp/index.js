#!/usr/bin/env node
// Only the stateless protocol era: no handshake, every request in its envelope.
const readline = require('node:readline')
const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\n')
readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params = {} } = JSON.parse(line)
  const meta = params._meta || {}
  if (id === undefined) return
  if (meta['io.modelcontextprotocol/protocolVersion'] !== '2026-07-28') {
    send({ id, error: { code: -32022, message: 'Unsupported protocol version', data: { supported: ['2026-07-28'] } } })
  } else if (method === 'server/discover') {
    send({ id, result: { supportedVersions: ['2026-07-28'], capabilities: { tools: {} }, instructions: 'Be kind.',
      _meta: { 'io.modelcontextprotocol/serverInfo': { name: 'modern', version: '1.0.0' } } } })
  } else if (method === 'tools/list') {
    send({ id, result: { tools: [{ name: 'now', description: 'The time.', inputSchema: { type: 'object' } }] } })
  } else send({ id, error: { code: -32601, message: 'Method not found' } })
})
