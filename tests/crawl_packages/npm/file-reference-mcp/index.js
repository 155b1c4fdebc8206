#!/usr/bin/env node
require('sibling')
