#!/usr/bin/env node
// An installer that asks: never answered.
process.stdout.write('Would you like to install into Claude? (y/n) ')
process.stdin.on('data', (data) => { if (/^y/i.test(data)) console.log('installed') })
