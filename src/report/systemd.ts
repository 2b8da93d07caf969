// Notifies systemd (sd_notify(3)): ready, status, reloading, stopping, and that the loop is alive.
import { formatInstantOrNull, type Clock, type Instant } from '../lib/clock.ts'
import { withSystemFallback } from '../lib/error.ts'
import { untilAborted } from '../lib/tasks.ts'
import type { KeeperView } from '../token/keeper.ts'
import { dueAtMs, phaseOf, usableToken, usableUntilMs } from '../token/selectors.ts'
import { recordOf, type TokenState } from '../token/state.ts'

/** Sends a datagram to this Unix socket (sd_notify(3)). Throws if that fails. */
export type SendDatagram = (path: string, content: string | Uint8Array) => void

/**
 * The longest time from the start to READY=1, below `TimeoutStartSec=`: no third party decides about a boot.
 */
const READY_WITHIN_MS = 60_000
/** Signs of life within the time that systemd allows: several, in case one is late on a busy host. */
const SIGNS_PER_WATCHDOG_TIME = 3

/**
 * Does nothing if `env` has no `NOTIFY_SOCKET`. `NOTIFY_SOCKET` and the watchdog's variables are removed from
 * `env`, so that no child speaks in our name.
 */
export function createSystemdNotifier(options: {
  env: NodeJS.ProcessEnv
  pid: number
  keeper: KeeperView
  clock: Pick<Clock, 'sleep'>
  sendDatagram: SendDatagram
}) {
  const { keeper, clock, sendDatagram } = options
  const { socket, watchdogMs } = takeSettings(options.env, options.pid)
  /** The sockets answer or a reload is over, and systemd does not know it yet. */
  let isReadyDue = false
  /** The first attempt takes so long that systemd must not wait for it. */
  let isLate = false
  let lastStatus = ''

  /** Reports whether systemd got the lines; what it did not get is sent again at the keeper's next event. */
  function send(...lines: string[]): boolean {
    if (socket === undefined) return true
    return withSystemFallback(false, () => {
      sendDatagram(socket, lines.join('\n'))
      return true
    })
  }

  function notify(): void {
    if (socket === undefined) return
    const state = keeper.state()
    const now = keeper.now()
    const status = statusLine(state, now)
    const isSettled = usableToken(state, now) !== null || dueAtMs(state, now) > now.bootMs
    const isReady = isReadyDue && (isLate || isSettled)
    if (!isReady && status === lastStatus) return
    if (!send(...(isReady ? ['READY=1'] : []), `STATUS=${status}`)) return
    lastStatus = status
    if (isReady) isReadyDue = false
  }

  /** Has a timer of its own, because `WatchdogSec=` may be shorter than the interval of the loop's ticks. */
  async function sendSignsOfLife(signal: AbortSignal): Promise<void> {
    if (watchdogMs === null) return untilAborted(signal)
    const everyMs = Math.max(1, Math.floor(watchdogMs / SIGNS_PER_WATCHDOG_TIME))
    while (!signal.aborted) {
      if (keeper.isAlive()) send('WATCHDOG=1')
      await clock.sleep(everyMs, signal)
    }
  }

  async function readyWhenLate(signal: AbortSignal): Promise<void> {
    await clock.sleep(READY_WITHIN_MS, signal)
    if (signal.aborted) return
    isLate = true
    notify()
  }

  return {
    /** Notifies until the signal is aborted; then that the daemon stops. */
    async run(signal: AbortSignal): Promise<void> {
      notify()
      const endListening = keeper.onEvent(notify)
      await Promise.all([sendSignsOfLife(signal), readyWhenLate(signal)])
      endListening()
      send('STOPPING=1', 'STATUS=Stopping')
    },
    /**
     * The sockets answer, or a reload is over: READY=1 follows once a kept token is usable or the first attempt has
     * ended, at the latest 60 s after the start.
     */
    ready(): void {
      isReadyDue = true
      notify()
    },
    /** The configuration is read again; `ready` must follow, whether the configuration is valid or not. */
    reloading(): void {
      isReadyDue = false
      lastStatus = ''
      send('RELOADING=1', `MONOTONIC_USEC=${process.hrtime.bigint() / 1000n}`, 'STATUS=Reading files again')
    },
  }
}

function takeSettings(env: NodeJS.ProcessEnv, pid: number) {
  const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: everyUs, WATCHDOG_PID: watchedPid } = env
  for (const name of ['NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID']) Reflect.deleteProperty(env, name)
  const isWatched = Number(everyUs ?? 0) > 0 && (watchedPid === undefined || Number(watchedPid) === pid)
  return { socket: socket === '' ? undefined : socket, watchdogMs: isWatched ? Number(everyUs) / 1000 : null }
}

/** The status for `systemctl status`, in one line: what is served, and what comes next. */
function statusLine(state: TokenState, now: Instant): string {
  const until = utcTime(usableUntilMs(state, now), now)
  const { failure } = recordOf(state, state.running)
  const next = utcTime(dueAtMs(state, now), now)
  return [
    phaseOf(state, now),
    usableToken(state, now) === null ? 'no usable token' : `token good until ${until}`,
    ...(failure === null ? [] : [failure.reason]),
    `next attempt ${next}`,
  ].join(', ')
}

/** To the second, in UTC: `systemctl status` shows it much later. */
function utcTime(bootMs: number, now: Instant): string {
  return (formatInstantOrNull(bootMs, now) ?? 'by an operator').replace(/\.\d+Z$/, 'Z')
}
