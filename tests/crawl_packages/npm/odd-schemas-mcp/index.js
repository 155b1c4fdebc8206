#!/usr/bin/env node
// Noise before JSON, two pages, schemas as they really come.
const { serve, tool } = require('tiny-mcp')
console.log('Odd server v1.0 starting...')
console.log('{"level":"info","msg":"JSON, but no message"}')
const first = [tool('plain'), { name: 'no_description', inputSchema: { type: 'object' } }, 'not an object', { title: 'no name' }]
const second = [
  { name: 'list_type', description: 'A list-valued type.', inputSchema: { type: 'object', properties: { a: { type: ['string', 'null'] } } } },
  { name: 'no_object', description: 'A schema that is no object.', inputSchema: 'string' },
  { name: '天气', description: '查询城市的天气预报。', inputSchema: { type: 'object' }, annotations: { readOnlyHint: true, title: '天气' } },
  { name: 'plain', description: 'The same name again.', inputSchema: {} },
]
serve('odd', [], {
  list: (params, reply) => params.cursor === 'two' ? reply({ tools: second, nextCursor: 'two' }) : reply({ tools: first, nextCursor: 'two' }),
})
