// The asynchronous calls to the file system, by their methods: a test watches them before each is made, or has one fail.
import fs, { type FileHandle } from 'node:fs/promises'

const handle = await fs.open('/dev/null')
const prototype = Object.getPrototypeOf(handle) as typeof handle
await handle.close()

/** The object and the method of each call, by the names that `node:fs` has for them. */
const fileCalls = {
  open: [fs, 'open'],
  lstat: [fs, 'lstat'],
  rename: [fs, 'rename'],
  unlink: [fs, 'unlink'],
  fstat: [prototype, 'stat'],
  fchown: [prototype, 'chown'],
  fchmod: [prototype, 'chmod'],
  readFile: [prototype, 'readFile'],
  writeFile: [prototype, 'writeFile'],
  fsync: [prototype, 'sync'],
} as const

/** The arguments of `vi.spyOn` for a call. */
export function methodOf(name: keyof typeof fileCalls) {
  const [object, method] = fileCalls[name]
  return [object as { sync: (this: FileHandle) => Promise<void> }, method as 'sync'] as const
}

/** Calls the listener before each call, with arguments as `node:fs` has them, until the returned function is called. */
export function watchFileCalls(onCall: (name: string, args: readonly unknown[]) => void): () => void {
  const ends = Object.entries(fileCalls).map(([name, [object, method]]) => {
    const methods = object as unknown as Record<string, (...args: unknown[]) => unknown>
    const original = methods[method]!
    methods[method] = function call(this: unknown, ...args) {
      onCall(name, object === prototype ? [(this as FileHandle).fd, ...args] : args)
      return original.apply(this, args)
    }
    return () => (methods[method] = original)
  })
  return () => ends.forEach((end) => end())
}

/** The names of the calls that the work makes. */
export async function recordFileCalls(work: () => Promise<unknown>): Promise<string[]> {
  const names: string[] = []
  const end = watchFileCalls((name) => names.push(name))
  try {
    await work()
    return names
  } finally {
    end()
  }
}
