// File system calls as the steps of a generator: one body, made synchronously where nothing can wait and asynchronously elsewhere.
import * as fs from 'node:fs'
import { promisify } from 'node:util'
import { errorCode } from './error.ts'

interface Calls {
  open(path: string, flags: number, mode?: number): number
  close(fd: number): void
  stat(path: string): fs.Stats
  lstat(path: string): fs.Stats
  fstat(fd: number): fs.Stats
  fchown(fd: number, uid: number, gid: number): void
  fchmod(fd: number, mode: number): void
  writeFile(fd: number, content: string | Uint8Array): void
  read(fd: number, buffer: Uint8Array, offset: number, length: number, position: null): number
  fsync(fd: number): void
  rename(from: string, to: string): void
  unlink(path: string): void
  readdir(path: string): string[]
}

/** One call that is to be made: its name in node:fs without `Sync`, and its arguments. */
interface FileCall {
  readonly name: keyof Calls
  readonly args: readonly unknown[]
}
/** Says which call to make next; is given its result, or thrown its error. */
export type FileSteps<T> = Generator<FileCall, T, unknown>

/** One step: makes the call and gives its result. */
export function* call<K extends keyof Calls>(
  name: K,
  ...args: Parameters<Calls[K]>
): FileSteps<ReturnType<Calls[K]>> {
  return (yield { name, args }) as ReturnType<Calls[K]>
}

/** Makes the calls where they stand. For file systems in memory, where none can wait and each is ten times faster so. */
export function performNow<T>(steps: FileSteps<T>): T {
  let step = steps.next()
  while (!step.done) {
    let result: unknown
    try {
      const { name, args } = step.value
      result = callsNow[name](...args)
    } catch (error) {
      step = steps.throw(error)
      continue
    }
    step = steps.next(result)
  }
  return step.value
}

/** Makes the calls without blocking the event loop. */
export async function performLater<T>(steps: FileSteps<T>): Promise<T> {
  let step = steps.next()
  while (!step.done) {
    const { name, args } = step.value
    const result = new Promise((resolve, reject) => {
      callsLater[name](...args, (error: Error | null, value: unknown) => {
        if (error === null) resolve(value)
        else reject(error)
      })
    })
    step = await result.then(
      (value) => steps.next(value),
      (error: unknown) => steps.throw(error),
    )
  }
  return step.value
}

/** Makes the calls, all of them about files in this directory, in the way that suits its file system. */
export async function perform<T>(directory: string, steps: FileSteps<T>): Promise<T> {
  return (await isInMemory(directory)) ? performNow(steps) : performLater(steps)
}

/** Whether the directory is on a file system that lives in memory, and so does not outlive the boot. */
export async function isInMemory(directory: string): Promise<boolean> {
  const known = inMemory.get(directory)
  if (known !== undefined) return known
  // Where even this cannot be asked, the calls themselves will say why.
  const found = await statfs(directory).catch(() => undefined)
  if (found === undefined) return false
  const answer = IN_MEMORY_TYPES.has(found.type)
  inMemory.set(directory, answer)
  return answer
}

/** `f_type` of tmpfs and ramfs, from statfs(2). */
const IN_MEMORY_TYPES = new Set([0x01021994, 0x858458f6])
/** Asked once for each directory: where a disk is mounted over it later, calls that could wait do so for a moment. */
const inMemory = new Map<string, boolean>()
const statfs = promisify(fs.statfs)

type Callable = Record<keyof Calls, (...args: unknown[]) => unknown>
const callsLater = fs as unknown as Callable
const callsNow: Callable = {
  open: fs.openSync,
  close: fs.closeSync,
  stat: fs.statSync,
  lstat: fs.lstatSync,
  fstat: fs.fstatSync,
  fchown: fs.fchownSync,
  fchmod: fs.fchmodSync,
  writeFile: fs.writeFileSync,
  read: fs.readSync,
  fsync: fs.fsyncSync,
  rename: fs.renameSync,
  unlink: fs.unlinkSync,
  readdir: fs.readdirSync,
} as Callable

/** What is at the path itself, links not followed; null where nothing is. */
export function* lstatIfAny(path: string): FileSteps<fs.Stats | null> {
  try {
    return yield* call('lstat', path)
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return null
    throw error
  }
}

/**
 * The content of a regular file of at most `maxBytes`, and what fstat says of it; null for the content where it is
 * longer or is no regular file. Never follows a link, never waits for a FIFO's other end. Throws as open does.
 */
export function* readSmallFile(
  path: string,
  maxBytes: number,
): FileSteps<{ content: Buffer | null; stats: fs.Stats }> {
  const fd = yield* call('open', path, READ_FLAGS)
  try {
    const stats = yield* call('fstat', fd)
    if (!stats.isFile() || stats.size > maxBytes) return { content: null, stats }
    const buffer = Buffer.allocUnsafe(maxBytes + 1)
    let length = 0
    for (let read = -1; read !== 0 && length < buffer.length; length += read) {
      read = yield* call('read', fd, buffer, length, buffer.length - length, null)
    }
    return { content: length > maxBytes ? null : buffer.subarray(0, length), stats }
  } finally {
    yield* call('close', fd)
  }
}

const READ_FLAGS =
  fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW | fs.constants.O_NONBLOCK | fs.constants.O_NOCTTY
