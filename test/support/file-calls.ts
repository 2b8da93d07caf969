// Watches the calls of node:fs/promises, by name, before each is made.
import fs from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'

type OnCall = (name: string, args: readonly unknown[]) => void
type Calls = Record<string, (...args: unknown[]) => unknown>
const FUNCTIONS = ['lstat', 'open', 'readdir', 'rename', 'unlink']
const METHODS = ['chmod', 'chown', 'close', 'read', 'stat', 'sync', 'writeFile']

/** Calls the listener before each call until the returned function is called. */
export async function watchFileCalls(onCall: OnCall): Promise<() => void> {
  const file = await fs.open('/dev/null')
  const prototype = Object.getPrototypeOf(file) as Calls
  await file.close()
  const undo = [...wrap(fs as unknown as Calls, FUNCTIONS, onCall), ...wrap(prototype, METHODS, onCall)]
  syncBuiltinESMExports()
  return () => {
    for (const restore of undo) restore()
    syncBuiltinESMExports()
  }
}

/** The names of the calls that the work makes. */
export async function recordFileCalls(work: () => Promise<unknown>): Promise<string[]> {
  const names: string[] = []
  const end = await watchFileCalls((name) => names.push(name))
  try {
    await work()
    return names
  } finally {
    end()
  }
}

function wrap(calls: Calls, names: readonly string[], onCall: OnCall): (() => void)[] {
  return names.map((name) => {
    const original = calls[name]!
    calls[name] = function (this: unknown, ...args) {
      onCall(name, args)
      return original.apply(this, args)
    }
    return () => {
      calls[name] = original
    }
  })
}
