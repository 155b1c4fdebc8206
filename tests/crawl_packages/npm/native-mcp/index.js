#!/usr/bin/env node
// Its native part is built by an install script, which is not run.
require('./build/Release/native.node')
