#!/usr/bin/env bun
import { Database } from 'bun:sqlite'
new Database(':memory:')
