#!/usr/bin/env node
setInterval(() => {}, 1000)
