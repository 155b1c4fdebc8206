#!/usr/bin/env node
// Ends without a word when what it wants is not there.
const { serve, tool } = require('tiny-mcp')
if (!process.env.QUIET_SERVICE_TOKEN || !process.env.QUIET_VERBOSE) process.exit(3)
serve('quiet', [tool('whisper')])
