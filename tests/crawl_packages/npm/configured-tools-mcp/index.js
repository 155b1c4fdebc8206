#!/usr/bin/env node
// Lists nothing until it is configured, and does not complain.
const { serve, tool } = require('tiny-mcp')
serve('wiki', process.env.WIKI_SITE_URL && process.env.WIKI_API_TOKEN ? [tool('read_page')] : [])
