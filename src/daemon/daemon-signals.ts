// The signals that the daemon understands: stop, reload, refresh. To be imported before everything else: what
// is set here is set by the first statements of the program.

export type DaemonSignals = ReturnType<typeof listenToSignals>

/** A signal during the start must not end the daemon, nor be lost. */
function listenToSignals() {
  const stop = new AbortController()
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, () => stop.abort())
  // Without a listener Node would open its inspector, which shows the memory of the process to every client.
  process.on('SIGUSR1', () => undefined)
  return {
    stop: stop.signal,
    /** Calls the listener when the configuration is to be read again, or was to be before. */
    onReload: remembering('SIGHUP'),
    /** Calls the listener when the service is to be asked now; at once, if that was requested before. */
    onRefresh: remembering('SIGUSR2'),
  }
}

function remembering(name: NodeJS.Signals): (listener: () => void) => void {
  let isDue = false
  let notify = (): void => {
    isDue = true
  }
  process.on(name, () => notify())
  return (listener) => {
    notify = listener
    if (isDue) listener()
  }
}

const isDaemon = process.argv[2] === 'run'

/** Of the command `run` alone. Signals that come while the rest is loaded are remembered. */
export const earlySignals = isDaemon ? listenToSignals() : undefined

// libuv reads it with its first thread: a call waits for each disk that hangs, and others look up names.
if (isDaemon) process.env['UV_THREADPOOL_SIZE'] ??= '16'
