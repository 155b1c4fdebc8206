#!/usr/bin/env node
require('a-package-that-it-forgot')
