#!/usr/bin/env node
// The first file of the bundle: loads the others, with the code that was made of them at build time where V8 takes it.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Script } from 'node:vm'
import type * as Errors from '../lib/error.ts'
import { cacheDirectory, ID_BYTES, moduleFunction, RELEASED } from './parts.ts'

type ModuleFunction = (
  exports: unknown,
  require: (id: string) => unknown,
  module: { exports: unknown },
  filename: string,
  directory: string,
) => void

const REPLACED = 'kyc-tokend was replaced by another version: try again'
/** `exitStatus.tryAgain`, where error.cjs cannot be loaded. */
const TRY_AGAIN = 75

const caches = cacheDirectory(__dirname, process.execArgv)
const modules = new Map<string, { exports: unknown }>()
/** The id of the build that runs: that of its first part. */
let build: string | undefined

function requirePart(id: string): unknown {
  if (!id.startsWith('./')) return require(id)
  let module = modules.get(id)
  if (module === undefined) {
    const filename = join(__dirname, id)
    const run = functionOf(id, filename)
    module = { exports: {} }
    if (!RELEASED.has(id)) modules.set(id, module)
    run(module.exports, requirePart, module, filename, __dirname)
  }
  return module.exports
}

function functionOf(id: string, filename: string): ModuleFunction {
  const source = readFileSync(filename)
  build ??= idOf(source)
  if (idOf(source) !== build) throw replaced(id)
  const cache = readCache(id)
  const script = new Script(moduleFunction(source.toString()), {
    filename,
    cachedData: cache && idOf(cache) === build ? cache.subarray(ID_BYTES) : undefined,
  })
  return script.runInThisContext() as ModuleFunction
}

function idOf(file: Buffer): string {
  return file.toString('latin1', 0, ID_BYTES)
}

function readCache(id: string): Buffer | undefined {
  try {
    return readFileSync(join(caches, id))
  } catch {
    // It is there for some of the files, and for the Node that made the bundle.
    return undefined
  }
}

function replaced(id: string): Error {
  if (id === './error.cjs') {
    // main.cjs loads it first, and all that prints errors needs it.
    process.stderr.write(`${REPLACED}\n`)
    process.exit(TRY_AGAIN)
  }
  const { exitStatus, UserError } = requirePart('./error.cjs') as typeof Errors
  return new UserError(REPLACED, exitStatus.tryAgain)
}

requirePart('./main.cjs')
