#!/usr/bin/env node
// Fetches a binary when it starts.
console.error('Downloading release binary from https://releases.example.invalid/tool.tar.gz')
fetch('https://releases.example.invalid/tool.tar.gz').catch((error) => { console.error('Download failed:', error.cause.code || error.cause.message); process.exit(1) })
