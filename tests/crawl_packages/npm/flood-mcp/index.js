#!/usr/bin/env node
// Prints without end.
const line = 'y'.repeat(1 << 16) + '\n'
const pour = () => { while (process.stdout.write(line)); }
process.stdout.on('drain', pour)
pour()
