#!/usr/bin/env node
// Takes memory until somebody stops it, a process at a time.
const { spawn } = require('node:child_process')
const kept = []
if (!process.argv[2]) for (let i = 0; i < 4; i++) spawn(process.execPath, [__filename, 'child'], { stdio: 'ignore' })
setInterval(() => { for (let i = 0; i < 8; i++) kept.push(Buffer.alloc(8 << 20, 1)) }, 20)
