// What systemd is told (sd_notify(3)): ready, how it stands, reloading, stopping, and that the loop is alive.
import { tellInstantIfAny, type Instant } from '../lib/clock.ts'
import { errorMessage } from '../lib/error.ts'
import type { Log } from '../lib/log.ts'
import {
  dueAtMs,
  failureOf,
  isSettled,
  phaseOf,
  usableToken,
  usableUntilMs,
  type TokenState,
} from '../token/state.ts'
import { follow, type Watched } from './follow.ts'

export interface SystemdNotifier {
  /** Tells what happens, until the signal is aborted; then that it stops. */
  run(signal: AbortSignal): Promise<void>
  /** The sockets answer: READY=1 follows as soon as a kept token is usable or the first attempt has ended. */
  ready(): void
  /** The configuration is read anew; `reloaded` must follow, whether it was good or not. */
  reloading(): void
  reloaded(): void
}

/**
 * Does nothing where `env` has no `NOTIFY_SOCKET`. `NOTIFY_SOCKET` and the watchdog's variables are removed from
 * `env`, so that no child speaks in our name. The loop looks at least every 15 s, while a request is under way too, so
 * `WatchdogSec=` must be no less than 40 s.
 */
export function createSystemdNotifier(options: {
  env: NodeJS.ProcessEnv
  pid: number
  keeper: Watched
  log: Log
  /** Null: system calls cannot be made (no koffi). */
  sendDatagram: ((path: string, text: string) => void) | null
  /** CLOCK_MONOTONIC in microseconds. */
  monotonicUs?: () => bigint
}): SystemdNotifier {
  const { keeper, log, sendDatagram, monotonicUs = () => process.hrtime.bigint() / 1000n } = options
  const { socket, isWatched } = takeSettings(options.env, options.pid)
  let isAnswering = false
  let isReadyTold = false
  let isReloading = false
  let told = ''
  let problem = ''

  /** Whether systemd got it; what it did not get is sent again at the keeper's next event. */
  function send(...lines: string[]): boolean {
    if (socket === undefined) return true
    try {
      if (sendDatagram === null) throw new Error('the optional package koffi is not installed')
      sendDatagram(socket, lines.join('\n'))
      problem = ''
      return true
    } catch (error) {
      const message = errorMessage(error)
      if (message !== problem)
        log('warning', 'systemd cannot be told how it goes', { event: 'notify-failed', error: message })
      problem = message
      return false
    }
  }

  function look(): void {
    const state = keeper.state()
    const now = keeper.now()
    const status = statusLine(state, now)
    const lines = status === told ? [] : [`STATUS=${status}`]
    const isReady = !isReadyTold && !isReloading && isAnswering && isSettled(state, now)
    if (isReady) lines.unshift('READY=1')
    if (lines.length === 0 || !send(...lines)) return
    told = status
    isReadyTold ||= isReady
  }

  return {
    async run(signal) {
      look()
      await follow(keeper, signal, ({ type }) => {
        look()
        if (type === 'looked' && isWatched && makesProgress(keeper.state())) send('WATCHDOG=1')
      })
      send('STOPPING=1', 'STATUS=Stopping')
    },
    ready() {
      isAnswering = true
      look()
    },
    reloading() {
      isReloading = true
      send('RELOADING=1', `MONOTONIC_USEC=${monotonicUs()}`, 'STATUS=Reading the configuration anew')
    },
    reloaded() {
      isReloading = false
      isReadyTold = false
      told = ''
      look()
    },
  }
}

/** A next attempt is planned, or none is needed until somebody acts. Time that is no number would wait for ever. */
function makesProgress(state: TokenState): boolean {
  return !Number.isNaN(dueAtMs(state))
}

function takeSettings(
  env: NodeJS.ProcessEnv,
  pid: number,
): { socket: string | undefined; isWatched: boolean } {
  const { NOTIFY_SOCKET: socket, WATCHDOG_USEC: everyUs, WATCHDOG_PID: watchedPid } = env
  for (const name of ['NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID']) Reflect.deleteProperty(env, name)
  const isWatched = Number(everyUs ?? 0) > 0 && (watchedPid === undefined || Number(watchedPid) === pid)
  return { socket: socket === '' ? undefined : socket, isWatched }
}

/** How it stands, for `systemctl status`: one line without line breaks. */
function statusLine(state: TokenState, now: Instant): string {
  return [tokenWords(state, now), planWords(state, now)].join('; ')
}

function tokenWords(state: TokenState, now: Instant): string {
  const token = usableToken(state, now)
  if (token !== null)
    return `${phaseOf(state, now)}: token ${token.fingerprint} is good until ${at(usableUntilMs(token), now)}`
  return `${phaseOf(state, now)}: no usable token`
}

function planWords(state: TokenState, now: Instant): string {
  if (state.kind === 'refused') {
    return `${state.refusal.reason}, not asked again until somebody acts (see kyc-tokend status)`
  }
  const failure = failureOf(state)
  if (failure !== null) {
    const times = failure.attempts === 1 ? 'failed once' : `failed ${failure.attempts} times`
    return `${times} since ${at(failure.since.bootMs, now)} (${failure.reason}), next attempt ${at(failure.retryAtMs, now)}`
  }
  if (state.kind === 'waiting') return 'asking for the first one'
  return `next refresh ${at(state.token.refreshAtMs, now)}`
}

/** To the second, in UTC: `systemctl status` shows it much later. */
function at(bootMs: number, now: Instant): string {
  return (tellInstantIfAny(bootMs, now) ?? 'never').replace('T', ' ').replace(/\.\d+Z$/, ' UTC')
}
