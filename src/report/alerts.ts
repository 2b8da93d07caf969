// Alerts: each is raised, repeated as a reminder, and resolved, in the log and in alert.json, which the
// operator's command reads. The state has the alert that is raised, so a restart repeats and loses none.
import type { AlertsConfig } from '../config/config.ts'
import { createManagedFile } from '../files/managed-file.ts'
import type { RemedyOf } from '../host/remedy.ts'
import type { Instant } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import { untilAborted } from '../lib/tasks.ts'
import { permanentReasons, type AlertReason, type AlertTestResult } from '../protocol.ts'
import type { Keeper } from '../token/keeper.ts'
import { lostAt, usableToken } from '../token/selectors.ts'
import { recordOf, type TokenState, type Trouble } from '../token/state.ts'

/** A condition that an operator must know of. */
interface Alert {
  readonly reason: AlertReason
  readonly detail: string
  readonly remedy: string
  /** When the last usable token was lost, once there has been none for `alerts.noTokenAfter`, awake. */
  readonly noTokenSince: Instant | null
  /** The failure behind `no-token`. */
  readonly failure?: Trouble['reason'] | AlertReason
  /** The host of the fleet that asked the service, if that was another one: it notifies people. */
  readonly askedBy: string | null
}
/** The alert that is raised, as the operator was notified of it. The keeper has it kept over a restart. */
interface Note extends Pick<Alert, 'reason' | 'detail' | 'askedBy'> {
  readonly pair: string
  readonly since: Instant
  /** How many reminders there were. */
  readonly reminders: number
  readonly content: Content | null
}
/** That of alert.json: changed only at an occasion for the operator, because each change runs the operator's command. */
type Content = Readonly<Record<string, unknown>>

const SENTENCES: Readonly<Record<AlertReason, string>> = {
  'account-inactive': 'The account is not active: the service gives it no token',
  'account-not-found': 'The service knows no account for these credentials',
  rejected: 'The service rejects the request for a token',
  'no-token': 'There has been no usable token for too long',
  test: 'This is a rehearsal of an alert',
}
/** Failures that raise an alert at once, and stay one until there is a token. */
const ALARMING: ReadonlySet<string> = new Set([...permanentReasons, 'rejected'] satisfies AlertReason[])
const REHEARSAL_MS = 10_000
/** The time for which alert.json says that the alert is resolved. */
const RESOLVED_MS = 60_000

export function createAlerts(options: {
  keeper: Pick<Keeper, 'state' | 'now' | 'onEvent' | 'remember'>
  log: Log
  /** alert.json, absolute. */
  path: string
  settings: AlertsConfig
  host: () => string
  /** Of which account; undefined: the default one. */
  account: string | undefined
  remedyOf: RemedyOf
}) {
  const { keeper, log, host, account, remedyOf } = options
  let { settings } = options
  /** The text of the file about an alert that is resolved, and until when it stays, on the boot clock. */
  let resolved: Content | null = null
  let goneAtMs = -Infinity
  /** The end of the rehearsal, likewise; it is an alert like any other, so that it tries the whole way to the operator. */
  let rehearsedUntilMs = -Infinity
  const rehearsal: Alert = {
    reason: 'test',
    detail: 'Raised by `kyc-tokend alert-test`',
    remedy: remedyOf('test'),
    noTokenSince: null,
    askedBy: null,
  }
  const file = createManagedFile(options.path, {
    // Readable by all: it holds no secret.
    desired() {
      const content = noted()?.content ?? resolved
      return (
        content && { text: `${JSON.stringify(content)}\n`, attributes: { mode: 0o644 }, mayStay: () => true }
      )
    },
    log,
  })

  const noted = (): Note | null => (keeper.state().notes['alert'] ?? null) as Note | null

  /**
   * A refusal, or `rejected`, of the running pair outranks `no-token`, which waits for the failure behind it: after
   * a start the first attempt may bring a token.
   */
  function realAlert(): Alert | null {
    const [state, now, former] = [keeper.state(), keeper.now(), noted()]
    // One that is raised goes on until the next failure or token.
    const standing = former?.reason === 'no-token' ? former : null
    const failure = recordOf(state, state.running).failure ?? standing
    if (failure === null) return null
    const noTokenSince = tokenlessSince(state, now)
    const remains = former?.pair === state.running && ALARMING.has(former.reason) ? former : null
    const alarm = ALARMING.has(failure.reason) && failure.reason !== remains?.reason ? failure : remains
    if (alarm === null && noTokenSince === null) return null
    const { reason, detail, askedBy } = alarm ?? failure
    const alert = { detail, askedBy, noTokenSince, remedy: remedyOf(reason) }
    if (alarm === null) return { ...alert, reason: 'no-token', failure: failure.reason }
    return { ...alert, reason: reason as AlertReason }
  }

  /** Null: there is a token, or has been one within the limit. The time awake counts. */
  function tokenlessSince(state: TokenState, now: Instant): Instant | null {
    const isLong = state.tokenless.forMs >= (settings.noTokenAfterMs ?? Infinity)
    return usableToken(state, now) === null && isLong ? lostAt(state, now) : null
  }

  const alertNow = (): Alert | null =>
    realAlert() ?? (keeper.now().bootMs < rehearsedUntilMs ? rehearsal : null)

  const origin = () => ({ host: host(), account, contact: settings.contact ?? undefined })

  /**
   * The alert stands: it is logged and written if it is new, or if it is time for a reminder. In a fleet the host that
   * asked notifies a person: the others log at `error`, and have no file.
   */
  function keepRaised({ reason, detail, remedy, failure, noTokenSince, askedBy }: Alert): void {
    const now = keeper.now()
    const former = noted()?.reason === reason ? noted() : null
    const since = former?.since ?? now
    const agoMs = now.bootMs - since.bootMs
    const reminders = settings.remindAfterMs.filter((afterMs) => agoMs >= afterMs).length
    if (former !== null && reminders <= former.reminders && !isUnsaid(former, askedBy)) return
    const message = SENTENCES[reason]
    const fields = {
      event: 'alert',
      reason,
      detail,
      remedy,
      failure,
      ...origin(),
      since: isoTime(since.wallMs),
      noTokenSince: noTokenSince === null ? undefined : isoTime(noTokenSince.wallMs),
      askedBy: askedBy ?? undefined,
      test: reason === 'test' || undefined,
    }
    const [reminder, remindedAt] = former === null ? [] : [reminders, isoTime(now.wallMs)]
    log(askedBy === null ? 'alert' : 'error', message, { ...fields, reminder })
    const content = askedBy === null ? { state: 'raised', message, ...fields, remindedAt } : null
    resolved = null
    const { running: pair } = keeper.state()
    keeper.remember({ alert: { pair, reason, detail, askedBy, since, reminders, content } satisfies Note })
  }

  function resolve({ reason, since, content }: Note): void {
    const message = 'The alert is over'
    const test = reason === 'test' || undefined
    const fields = { event: 'alert-resolved', reason, ...origin(), since: isoTime(since.wallMs), test }
    log('notice', message, fields)
    const { bootMs, wallMs } = keeper.now()
    resolved = content && { state: 'resolved', message, ...fields, resolvedAt: isoTime(wallMs) }
    goneAtMs = bootMs + RESOLVED_MS
  }

  function check(): void {
    const { bootMs } = keeper.now()
    const alert = alertNow()
    const former = noted()
    // A rehearsal is resolved where another alert takes its place, too.
    if (former !== null && (alert === null || (former.reason === 'test' && alert.reason !== 'test'))) {
      keeper.remember({ alert: null })
      resolve(former)
    }
    if (alert !== null) keepRaised(alert)
    if (bootMs >= goneAtMs) resolved = null
    void file.reconcile()
  }

  return {
    /** Maintains the alert until the signal is aborted. An alert that is raised then stays in alert.json. */
    async run(signal: AbortSignal): Promise<void> {
      check()
      const endListening = keeper.onEvent(check)
      await untilAborted(signal)
      endListening()
      await file.reconcile()
    },
    reconfigure(next: AlertsConfig): void {
      settings = next
    },
    /** The alert that is raised; null: none. A rehearsal does not count. */
    current() {
      const alert = realAlert()
      const since = isoTime((noted()?.since ?? keeper.now()).wallMs)
      return alert && { reason: alert.reason, remedy: alert.remedy, since, contact: settings.contact }
    },
    /** Raises an alert with `test: true` and resolves it after 10 s. Refused while an alert is raised. */
    test(): AlertTestResult {
      const standing = alertNow()
      if (standing !== null) return { outcome: 'refused', detail: `The alert ${standing.reason} is raised` }
      const { bootMs, wallMs } = keeper.now()
      rehearsedUntilMs = bootMs + REHEARSAL_MS
      check()
      setTimeout(check, REHEARSAL_MS).unref()
      return { outcome: 'raised', resolvesAt: isoTime(wallMs + REHEARSAL_MS) }
    },
  }
}

/** In a fleet another host asked until now, and notified people. */
function isUnsaid({ content }: Note, askedBy: string | null): boolean {
  return content === null && askedBy === null
}

function isoTime(wallMs: number): string {
  return new Date(wallMs).toISOString()
}
