#!/usr/bin/env node
// A command of npm around a server of Python.
require('node:child_process').spawn('uvx', ['wrapped-mcp-server'], { stdio: 'inherit' })
