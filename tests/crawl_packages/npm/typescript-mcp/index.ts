#!/usr/bin/env bun
import { serve, tool } from 'tiny-mcp'
const name: string = 'typed'
serve(name, [tool('typed')])
