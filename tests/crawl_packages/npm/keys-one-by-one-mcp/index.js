#!/usr/bin/env node
// Names its variables one at a time, and checks the form of one.
const { serve, tool } = require('tiny-mcp')
for (const name of ['ACME_API_KEY', 'ACME_BASE_URL']) {
  if (!process.env[name]) { console.error(`Error: ${name} environment variable is required`); process.exit(1) }
}
if (!process.env.ACME_API_KEY.startsWith('acme_')) {
  console.error("Error: ACME_API_KEY is invalid, it must start with 'acme_'"); process.exit(1)
}
new URL(process.env.ACME_BASE_URL)
serve('keys', [tool('charge')])
