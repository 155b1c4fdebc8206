// Loaded before a server whose compiled parts are not there, since nothing of a package runs when it is installed: in
// their place stands a thing that takes every call and answers with itself. What a server lists does not depend on it.
'use strict'
const { Module } = require('node:module')

// Whoever is called back when something is done, is called back at once: no error, no rows.
const done = (args) => {
  const last = args.at(-1)
  if (typeof last === 'function') setImmediate(() => { try { last.call(stand, null, []) } catch {} })
  return stand
}
const stand = new Proxy(function () {}, {
  get: (_, name) => name === Symbol.toPrimitive ? () => '' : name === Symbol.iterator ? function * () {} :
    name === 'then' || name === 'toJSON' || name === '__esModule' ? undefined : name === 'prototype' ? {} : stand,
  set: () => true,
  apply: (_, __, args) => done(args),
  construct: (_, args) => done(args)
})
const load = Module._load
Module._load = function (request, ...rest) {
  try {
    return load.call(this, request, ...rest)
  } catch (error) {
    // Those that look for the compiled file, and the file itself.
    if (/\.node$|^(?:bindings|node-gyp-build|node-pre-gyp|@mapbox\/node-pre-gyp)$/.test(request)) return stand
    throw error
  }
}
for (const finder of ['bindings', 'node-gyp-build']) {
  const plain = Module._load
  Module._load = function (request, ...rest) {
    const found = plain.call(this, request, ...rest)
    if (request !== finder || typeof found !== 'function') return found
    return Object.assign((...args) => { try { return found(...args) } catch { return stand } }, found)
  }
}
