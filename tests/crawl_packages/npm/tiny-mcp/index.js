// The smallest MCP server: JSON-RPC lines on stdin and stdout, tools given by the caller.
const readline = require('node:readline')

function tool(name, description = `The tool ${name}.`) {
  return { name, description, inputSchema: { type: 'object', properties: { city: { type: 'string' } } } }
}

function serve(name, tools, { capabilities = { tools: {} }, list, initialize } = {}) {
  const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', ...message }) + '\n')
  readline.createInterface({ input: process.stdin }).on('line', async (line) => {
    let message
    try { message = JSON.parse(line) } catch { return }
    if (message.id === undefined) return
    const reply = (result) => send({ id: message.id, result })
    const refuse = (code, text) => send({ id: message.id, error: { code, message: text } })
    try {
      if (message.method === 'initialize') {
        if (initialize) return initialize(reply, refuse)
        reply({ protocolVersion: message.params.protocolVersion, capabilities, serverInfo: { name, version: '1.0.0' } })
      } else if (message.method === 'tools/list') {
        if (list) await list(message.params || {}, reply, refuse)
        else reply({ tools })
      } else refuse(-32601, 'Method not found')
    } catch (error) { refuse(-32603, String(error)) }
  }).on('close', () => process.exit(0))
}

module.exports = { serve, tool }
