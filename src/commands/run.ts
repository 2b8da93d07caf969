// `kyc-tokend run`: the daemon in the foreground, and the signals that it understands.
import { runDaemon, type DaemonSignals } from '../daemon.ts'
import { exitStatus } from '../lib/error.ts'
import type { RunCommand } from './command.ts'

export const run: RunCommand = async ({ options, env, stderr }) => {
  const configPath = options['config'] as string | undefined
  // As `node` it would be one of many in the process list.
  process.title = 'kyc-tokend'
  await runDaemon({ configPath, env, stderr, signals: listenToSignals() })
  return exitStatus.ok
}

/** From the first moment on: a signal that comes while the daemon starts must not end it, nor be lost. */
function listenToSignals(): DaemonSignals {
  const stop = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, () => stop.abort())
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
