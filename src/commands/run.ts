// `kyc-tokend run`: the daemon in the foreground.
import { listenToSignals } from '../lib/daemon-signals.ts'
import { exitStatus } from '../lib/error.ts'
import { requireLinux } from '../lib/supported-node.ts'
import { runDaemon } from '../run-daemon.ts'
import type { RunCommand } from './command.ts'
import { configurationOf } from './ask.ts'

/** The longest wait for a reader of the log's last line, in ms. */
const LINGER_MS = 1_000

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
  try {
    await runDaemon({ ...configuration, stderr, signals })
  } finally {
    // A log that is not read can keep the process alive.
    setTimeout(() => process.exit(), LINGER_MS).unref()
  }
  return exitStatus.ok
}
