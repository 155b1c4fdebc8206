#!/usr/bin/env node
// Needs a service on this machine.
require('node:net').connect(6379, '127.0.0.1').on('error', (error) => { console.error('Redis connection failed:', error.message); process.exit(1) })
