#!/usr/bin/env node
// Looks at the version of Node.js that runs it.
if (Number(process.versions.node.split('.')[0]) < 99) { console.error(`newer-node-mcp requires Node.js 99 or newer; this is ${process.version}`); process.exit(1) }
