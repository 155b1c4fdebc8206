#!/usr/bin/env node
// Looks for its graph database before it serves.
require('node:net').connect(7687, 'localhost').on('error', (error) => {
  console.error('Neo4jError: Failed to connect to server. Please ensure that your database is listening on the correct host and port.', 'Caused by:', error.message || error.errors.map((e) => e.message).join(', '))
  process.exit(1)
})
