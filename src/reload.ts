// Reload: the configuration is read anew and taken over as a whole, or not at all.
import type { Config, SocketConfig } from './config/config.ts'
import { createTokenFiles, removeTokenFiles } from './delivery/token-files.ts'
import { errorCode, exitStatus, UserError } from './lib/error.ts'
import { idle } from './lib/replaceable.ts'
import { deliverFiles, serveHttp, type Line } from './line.ts'
import { announceFaultyReload, announceReload } from './report/announce.ts'

/** Reads the configuration; for a daemon that runs in another directory than is configured now, as if it were that one. */
export type Load = (running?: { runtimeDirectory: string }) => Promise<Config>

/** Reads the configuration anew. A faulty one is reported, and the running one stays. */
export async function reload(line: Line, load: Load, signal: AbortSignal): Promise<void> {
  // Sockets that are not there yet could not be moved.
  await line.listening.reached(signal)
  if (signal.aborted) return
  const { runtimeDirectory, stateDirectory } = line.config
  line.systemd.reloading()
  try {
    const wanted = await read(load)
    // The daemon stands where it stands: only a restart moves it, as a whole.
    const next =
      wanted.runtimeDirectory === runtimeDirectory ? wanted : await read(() => load({ runtimeDirectory }))
    const { http } = line.config
    // Once closed, a socket of systemd's could not be taken up again.
    const isHttpFixed = line.inherited.http.length > 0 && (wanted.http === null) !== (http === null)
    await apply({ ...next, stateDirectory, http: isHttpFixed ? http : next.http }, line)
    const needingRestart = [
      ...(wanted.runtimeDirectory === runtimeDirectory ? [] : ['runtimeDirectory']),
      ...(wanted.stateDirectory === stateDirectory ? [] : ['stateDirectory']),
      ...(isHttpFixed ? ['http'] : []),
    ]
    announceReload(wanted, line.logging.log, needingRestart)
  } catch (error) {
    if (!(error instanceof UserError)) throw error
    announceFaultyReload(error.message, line.logging.log)
  } finally {
    line.systemd.reloaded()
  }
}

/** Whatever is wrong with the files is a fault of theirs, and ends nobody. Throws UserError. */
async function read(load: () => Promise<Config>): Promise<Config> {
  try {
    return await load()
  } catch (error) {
    if (error instanceof UserError) throw error
    // Not its message, which could quote what was read.
    const why = errorCode(error) ?? 'an internal fault'
    throw new UserError(
      `The configuration cannot be read (${why}): try \`kyc-tokend check\`, or restart`,
      exitStatus.configuration,
      { cause: error },
    )
  }
}

/** What can fail comes first: a configuration is taken over as a whole or not at all. */
async function apply(next: Config, line: Line): Promise<void> {
  const { config: former, keeper, memory, logging } = line
  const asking = line.askingWith(next)
  await moveSockets(line, next)
  line.config = next
  logging.reconfigure(next.log)
  memory.changeSubject(asking.subject)
  keeper.reload(asking)
  line.files = createTokenFiles({ files: next.tokenFiles, keeper, log: logging.log })
  // The former part looks at its files once more when it ends: only then can those that are dropped be removed.
  await line.filesPart.replace((signal) => deliverFiles(line, signal))
  const kept = new Set(next.tokenFiles.map(({ path }) => path))
  const dropped = former.tokenFiles.filter(({ path }) => !kept.has(path))
  await removeTokenFiles(dropped, { now: () => keeper.now(), log: logging.log })
}

/** The sockets as the next configuration wants them, all of them or none. Throws UserError. */
async function moveSockets(line: Line, next: Pick<Config, 'ipc' | 'http'>): Promise<void> {
  const former = line.config.http
  await moveHttp(line, { from: former, to: next.http })
  try {
    await line.ipc.reconfigure(next.ipc)
  } catch (error) {
    await moveHttp(line, { from: next.http, to: former })
    throw error
  }
}

async function moveHttp(
  line: Line,
  { from, to }: { from: SocketConfig | null; to: SocketConfig | null },
): Promise<void> {
  if (to !== null && from !== null) await line.http?.reconfigure(to)
  else if (to !== null) await switchHttpOn(line, to)
  else if (from !== null) void line.httpPart.replace(null)
}

/** Resolves when it listens. Throws UserError; there is no HTTP then. */
function switchHttpOn(line: Line, socket: SocketConfig): Promise<void> {
  return new Promise((resolve, reject) => {
    void line.httpPart.replace(async (signal) => {
      try {
        await serveHttp(line, { socket, signal, onListening: resolve })
        resolve()
      } catch (error) {
        if (!(error instanceof UserError)) throw error
        reject(error)
        await idle(signal)
      }
    })
  })
}

/** Runs the work each time it is asked for, never twice at once; what is asked for meanwhile is done once more. */
export function inTurn(work: () => Promise<void>): () => void {
  let last = Promise.resolve()
  let waiting = false
  return () => {
    if (waiting) return
    waiting = true
    last = last.then(() => {
      waiting = false
      return work()
    })
  }
}
