#!/usr/bin/env node
// Fetches its model when it starts.
console.error('Downloading model embed-small (first run only) ...')
fetch('https://models.example.invalid/embed-small.onnx').catch((error) => { console.error('TypeError: fetch failed', error.cause.code); process.exit(1) })
