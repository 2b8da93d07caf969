// `kyc-tokend run`: the daemon in the foreground, and the signals that it understands.
import { runDaemon, type DaemonSignals } from '../daemon.ts'
import { exitStatus } from '../lib/error.ts'
import type { RunCommand } from './command.ts'

/** How long the end waits for the last line to be read, in ms. */
const LINGER_MS = 1_000

export const run: RunCommand = async ({ options, env, stderr }) => {
  const configPath = options['config'] as string | undefined
  // As `node` it would be one of many in the process list.
  process.title = 'kyc-tokend'
  try {
    await runDaemon({ configPath, env, stderr, signals: listenToSignals() })
  } finally {
    // What can still hold the process up is a log that nobody reads.
    setTimeout(() => process.exit(), LINGER_MS).unref()
  }
  return exitStatus.ok
}

/** From the first moment on: a signal that comes while the daemon starts must not end it, nor be lost. */
function listenToSignals(): DaemonSignals {
  const stop = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, () => stop.abort())
  // Without a listener Node would open its inspector, which shows the memory of the process to whoever connects.
  process.on('SIGUSR1', () => undefined)
  return { stop: stop.signal, onReload: remembering('SIGHUP'), onRefresh: remembering('SIGUSR2') }
}

function remembering(name: NodeJS.Signals): (listener: () => void) => void {
  let isDue = false
  let tell = (): void => {
    isDue = true
  }
  process.on(name, () => tell())
  return (listener) => {
    tell = listener
    if (isDue) listener()
  }
}
