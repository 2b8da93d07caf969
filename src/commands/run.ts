// `kyc-tokend run`: the daemon in the foreground.
import { listenToSignals } from '../daemon/daemon-signals.ts'
import { exitStatus } from '../lib/error.ts'
import { requireLinux } from '../host/supported-node.ts'
import { runDaemon } from '../daemon/run-daemon.ts'
import type { RunCommand } from '../terminal/command.ts'
import { configurationOf } from '../terminal/ask.ts'

export const run: RunCommand = async ({
  options,
  env,
  stderr,
  daemonSignals: signals = listenToSignals(),
}) => {
  requireLinux()
  const configuration = configurationOf({ options, env })
  // In the process list `node` would not say which program runs.
  process.title = 'kyc-tokend'
  await runDaemon({ ...configuration, stderr, signals })
  return exitStatus.ok
}
