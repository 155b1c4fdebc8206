#!/usr/bin/env node
throw new Error('boom')
