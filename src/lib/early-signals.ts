// The daemon's signals from the first line of the program on: to be imported before everything else.
import { listenToSignals, type DaemonSignals } from './daemon-signals.ts'

/** Those of the command `run`. Signals that came while the rest was loaded are remembered. */
export const earlySignals: DaemonSignals | undefined =
  process.argv[2] === 'run' ? listenToSignals() : undefined
