// Watches the asynchronous calls to the file system, by name, before each is made.
import { fs } from '../../src/files/fs.ts'

type OnCall = (name: string, args: readonly unknown[]) => void

/** Calls the listener before each call until the returned function is called. */
export function watchFileCalls(onCall: OnCall): () => void {
  const originals = { ...fs }
  const calls = fs as unknown as Record<string, (...args: unknown[]) => unknown>
  for (const [name, original] of Object.entries({ ...calls }))
    calls[name] = (...args) => {
      onCall(name, args)
      return original(...args)
    }
  return () => void Object.assign(fs, originals)
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
