// Single-instance lock: of all daemons that are started for the same sockets or the same directories, one lives.
import { constants, type Stats } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Config } from '../../config/config.ts'
import { inDirectoryOf, lstatIfAny } from '../../lib/atomic-file.ts'
import { errorCode, exitStatus, fallbackOnSystemError, UserError } from '../../lib/error.ts'
import { fs } from '../../lib/fs.ts'
import { loadLibc } from '../../lib/libc.ts'
import { createProblemLog, type Log } from '../../lib/log.ts'
import { createNameWatch } from '../../lib/name-watch.ts'
import { isSocketActivated, type InheritedSockets } from '../../lib/socket-activation.ts'
import { assertFree, assertPathFree, inTurnAt, isSame, isThere } from './socket-path.ts'

/** Locked by flock(2): the kernel releases it with the process, so a crash leaves nothing that blocks a start. */
const LOCK_FILE = 'instance.lock'
/** Version 1.1.0 locked a directory by listening here: one that answers is a living daemon. */
const FORMER_LOCK = 'lock'
const LOCK_FLAGS = constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK

export interface InstanceLock {
  /** Locks again where the file was removed, or could not be locked. Never fails: a problem is logged, once. */
  tick(log: Log): Promise<void>
  /** Never fails, and waits for no disk. The files stay. */
  close(): void
}

type Setting = 'runtimeDirectory' | 'stateDirectory'
interface Held {
  readonly fd: number
  readonly stats: Stats
}

/**
 * From its return on this is the only daemon here, until the lock is closed. To be called before anything is asked or
 * written. Throws UserError: 69 where another daemon runs, 78 where the runtime directory is not safe or cannot be
 * written, 75 where its disk does not answer. State is worth less than tokens: where its directory takes no lock the
 * daemon runs, warns, and tries again.
 */
export async function acquireInstanceLock(
  config: Pick<Config, 'ipc' | 'http' | 'runtimeDirectory' | 'stateDirectory'>,
  inherited: InheritedSockets,
): Promise<InstanceLock> {
  const { ipc, http, runtimeDirectory, stateDirectory } = config
  if (!isSocketActivated(inherited)) {
    await assertPathFree(ipc)
    if (http !== null) await assertPathFree(http)
  }
  const first = await lock(runtimeDirectory, 'runtimeDirectory')
  const runtime = createLock(runtimeDirectory, { setting: 'runtimeDirectory', held: first })
  try {
    const held = await lock(stateDirectory, 'stateDirectory', first).catch(unlessUnavailable)
    const state = createLock(stateDirectory, { setting: 'stateDirectory', held })
    return {
      async tick(log) {
        await Promise.all([runtime.tick(log), state.tick(log)])
      },
      close() {
        runtime.close()
        state.close()
      },
    }
  } catch (error) {
    runtime.close()
    throw error
  }
}

function createLock(
  directory: string,
  { setting, held: first }: { setting: Setting; held: Held | null },
): InstanceLock {
  let held = first
  let isClosed = false
  let log: Log = () => undefined
  const problem = createProblemLog((error) => {
    const path = directory
    if (error === null) log('notice', 'A directory is locked again', { event: 'state-locked', path })
    else
      log('warning', 'Nothing keeps a second daemon out of a directory', {
        event: 'state-unlocked',
        path,
        error,
      })
  })

  async function lockAgain(): Promise<boolean> {
    try {
      if (held === null || !(await isThere(lockIn(directory, setting), held.stats))) {
        const next = await lock(directory, setting)
        release(held)
        held = next
      }
      problem.set(null)
    } catch (error) {
      if (!(error instanceof UserError)) throw error
      problem.set(error.message)
    }
    return problem.current() === null
  }

  const unlessSame = createNameWatch()
  let last: Promise<void> | null = null
  return {
    tick(nextLog) {
      log = nextLog
      last ??= unlessSame(directory, lockAgain).finally(() => {
        last = null
        if (isClosed) release(held)
      })
      return last
    },
    close() {
      isClosed = true
      if (last === null) release(held)
    },
  }
}

/** Opens and locks the file. `other`: the lock that this process already has, perhaps of the same directory. */
async function lock(directory: string, setting: Setting, other?: Held): Promise<Held> {
  const { path, failure } = lockIn(directory, setting)
  const former = { path: join(directory, FORMER_LOCK), setting }
  const work = async (): Promise<Held> =>
    inDirectoryOf(path, { use: 'sockets', failure }, async (reached) => {
      if ((await lstatIfAny(former.path))?.isSocket() === true) {
        await assertFree(former)
        await fs.unlink(join(dirname(reached), FORMER_LOCK))
      }
      const held = await openLocked(reached)
      if (held.isLocked || (other !== undefined && isSame(held.stats, other.stats))) return held
      await fs.close(held.fd)
      throw new UserError(
        `Another kyc-tokend runs with ${directory}: stop it, or set another \`${setting}\``,
        exitStatus.unavailable,
      )
    })
  return inTurnAt({ path, setting, failure }, { work, undo: async ({ fd }) => fs.close(fd) })
}

/** For reading: a file that is open for writing would keep its file system from becoming read-only. NFS needs the latter. */
async function openLocked(path: string, access = constants.O_RDONLY): Promise<Held & { isLocked: boolean }> {
  const fd = await fs.open(path, LOCK_FLAGS | access, 0o600)
  try {
    return { fd, stats: await fs.fstat(fd), isLocked: loadLibc().lock(fd) }
  } catch (error) {
    await fs.close(fd)
    if (errorCode(error) !== 'EBADF' || access === constants.O_RDWR) throw error
    return openLocked(path, constants.O_RDWR)
  }
}

function lockIn(directory: string, setting: Setting) {
  return { path: join(directory, LOCK_FILE), setting, failure: `The directory ${directory} cannot be locked` }
}

function unlessUnavailable(error: unknown): null {
  if (!(error instanceof UserError) || error.status === exitStatus.unavailable) throw error
  return null
}

/** Closing unlocks. A disk that does not answer may hold it up: the end of the process does the same. */
function release(held: Held | null): void {
  if (held !== null) void fs.close(held.fd).catch(fallbackOnSystemError(undefined))
}
