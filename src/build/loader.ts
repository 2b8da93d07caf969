#!/usr/bin/env node
// The first file of the bundle: loads the others, with the code that was made of them at build time where V8 takes it.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Script } from 'node:vm'
import { cacheDirectory, ID_BYTES, moduleFunction } from './parts.ts'

type ModuleFunction = (
  exports: unknown,
  require: (id: string) => unknown,
  module: { exports: unknown },
  filename: string,
  directory: string,
) => void

const caches = cacheDirectory(__dirname, process.execArgv)
const modules = new Map<string, { exports: unknown }>()

function requirePart(id: string): unknown {
  if (!id.startsWith('./')) return require(id)
  let module = modules.get(id)
  if (module === undefined) {
    module = { exports: {} }
    modules.set(id, module)
    const filename = join(__dirname, id)
    functionOf(id, filename)(module.exports, requirePart, module, filename, __dirname)
  }
  return module.exports
}

function functionOf(id: string, filename: string): ModuleFunction {
  const source = readFileSync(filename)
  const cache = readCache(id)
  const isOfSource = cache?.subarray(0, ID_BYTES).equals(source.subarray(0, ID_BYTES)) === true
  const script = new Script(moduleFunction(source.toString()), {
    filename,
    cachedData: isOfSource ? cache.subarray(ID_BYTES) : undefined,
  })
  return script.runInThisContext() as ModuleFunction
}

function readCache(id: string): Buffer | undefined {
  try {
    return readFileSync(join(caches, id))
  } catch {
    // It is there for some of the files, and for the Node that made the bundle.
    return undefined
  }
}

requirePart('./main.cjs')
