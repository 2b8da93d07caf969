// Alerts: each is raised, repeated as a reminder, and resolved, in the log and in alert.json, which the
// operator's command reads.
import type { AlertsConfig } from '../config/config.ts'
import { createOwnFile } from '../files/own-file.ts'
import type { RemedyOf } from '../host/remedy.ts'
import { isRecord, parseJson } from '../lib/input.ts'
import type { Log } from '../lib/log.ts'
import type { AlertTestResult } from '../protocol.ts'
import { currentAlert, type CurrentAlert } from '../token/current-alert.ts'
import type { KeeperView } from '../token/keeper.ts'
import { serviceOf } from '../token/selectors.ts'

/** A raised alert. A rehearsal is an alert like any other, so that it tries the whole way to the operator. */
interface Raised extends Omit<CurrentAlert, 'reason'> {
  readonly reason: CurrentAlert['reason'] | 'test'
}

/** The content of alert.json. */
type AlertRecord = Readonly<Record<string, unknown>>

const SENTENCES: Readonly<Record<Raised['reason'], string>> = {
  'account-inactive': 'The account is not active: the service gives it no token',
  'account-not-found': 'The service knows no account for these credentials',
  rejected: 'The service rejects the request for a token',
  'no-token': 'There has been no usable token for too long',
  test: 'This is a rehearsal of an alert',
}
const REHEARSAL_MS = 10_000
const DETAIL_OF_REHEARSAL = 'Raised by `kyc-tokend alert-test`'
/** The time for which alert.json says that the alert is resolved. */
const RESOLVED_MS = 60_000

/** Without a token the failure behind it is what a person does something about. */
export function alertRemedy(
  { reason, failure }: Pick<Raised, 'reason' | 'failure'>,
  remedyOf: RemedyOf,
): string {
  return remedyOf(failure ?? reason)
}

export function createAlerts(options: {
  keeper: KeeperView
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
  const failure = { sentence: 'An alert file cannot be brought up to date', event: 'alert-file-failed' }
  // Readable by all: it holds no secret.
  const file = createOwnFile(options.path, { mode: 0o644, log, failure })
  /** The alert of which the operator was notified, with its reminders. */
  let raised: Raised | null = null
  let reminders = 0
  let remindedAt: string | undefined
  /** The file: changed only at an occasion for the operator, because each change runs the operator's command. */
  let content: AlertRecord | null = null
  /** On the boot clock; infinite: it holds a raised alert, or nothing. */
  let goneAtMs = Infinity
  /** The file of a former run has been read: from now on it is written. */
  let isBegun = false
  let rehearsal: { readonly alert: Raised; readonly untilMs: number } | null = null

  /** `isRaised`: one that was raised as `no-token` stays while an attempt is due. */
  function current(isRaised = raised?.reason === 'no-token'): CurrentAlert | null {
    return currentAlert(keeper.state(), keeper.now(), settings.noTokenAfterMs, { isRaised })
  }

  /** The reminders due at this age: one more, once there has been no usable token for too long. */
  function remindersAt(ageMs: number, { reason, noTokenSince }: Pick<Raised, 'reason' | 'noTokenSince'>) {
    const byAge = settings.remindAfterMs.filter((afterMs) => ageMs >= afterMs).length
    return noTokenSince !== null && reason !== 'no-token' ? byAge + 1 : byAge
  }

  const origin = (): AlertRecord => ({ host: host(), account, contact: settings.contact ?? undefined })

  function fieldsOf(alert: Raised): AlertRecord {
    return {
      event: 'alert',
      reason: alert.reason,
      detail: alert.detail,
      remedy: alertRemedy(alert, remedyOf),
      failure: alert.failure ?? undefined,
      ...origin(),
      since: isoTime(alert.since.wallMs),
      noTokenSince: alert.noTokenSince === null ? undefined : isoTime(alert.noTokenSince.wallMs),
      askedBy: alert.askedBy ?? undefined,
      test: alert.reason === 'test' || undefined,
    }
  }

  function setRaised(alert: Raised): void {
    const message = SENTENCES[alert.reason]
    content = { state: 'raised', level: 'alert', message, ...fieldsOf(alert), remindedAt }
    goneAtMs = Infinity
  }

  /**
   * Logs the alert and sets its file. In a fleet the host that asked logs at `alert`, to wake one person, the
   * others at `error`.
   */
  function announce(alert: Raised, occasion: { reminder?: number; resumed?: true }): void {
    const fields = { event: 'alert', ...fieldsOf(alert), ...occasion }
    log(alert.askedBy === null ? 'alert' : 'error', SENTENCES[alert.reason], fields)
    setRaised(alert)
  }

  /** `alert`: the fields of the one that is over. */
  function resolve(alert: AlertRecord, by: 'token' | 'reload' | 'test' | 'restart'): void {
    const event = 'alert-resolved'
    const message = 'The alert is over'
    const fields = { event, ...alert, by, ...origin(), test: alert['reason'] === 'test' || undefined }
    log('notice', message, fields)
    const { bootMs, wallMs } = keeper.now()
    content = { state: 'resolved', level: 'notice', message, ...fields, resolvedAt: isoTime(wallMs) }
    goneAtMs = bootMs + RESOLVED_MS
  }

  function resolveRaised({ reason, since, askedBy }: Raised): void {
    const { lastSuccessAt } = serviceOf(keeper.state())
    const isByToken = lastSuccessAt !== null && lastSuccessAt.bootMs > since.bootMs
    const lastedSeconds = Math.round((keeper.now().bootMs - since.bootMs) / 1000)
    const fields = { reason, since: isoTime(since.wallMs), lastedSeconds, askedBy: askedBy ?? undefined }
    resolve(fields, reason === 'test' ? 'test' : isByToken ? 'token' : 'reload')
  }

  /** Notifies the operator of what is new: this alert is raised, it is time for a reminder, or there is none. */
  function notify(alert: Raised | null, resumed: { resumed?: true } = {}): void {
    const former = raised
    // Of two alerts the second takes the place of the first, which is over only if it was a rehearsal.
    if (former !== null && (alert === null || (former.reason === 'test' && alert.reason !== 'test')))
      resolveRaised(former)
    raised = alert
    if (alert === null) return
    const { bootMs, wallMs } = keeper.now()
    const due = remindersAt(bootMs - alert.since.bootMs, alert)
    const isNew = former?.reason !== alert.reason
    if (!isNew && due <= reminders) return
    reminders = due
    remindedAt = isNew ? undefined : isoTime(wallMs)
    announce(alert, { ...(!isNew && { reminder: due }), ...resumed })
  }

  function check(): void {
    const { bootMs } = keeper.now()
    const real = current()
    // A real one ends a rehearsal.
    if (real !== null || (rehearsal !== null && bootMs >= rehearsal.untilMs)) rehearsal = null
    notify(real ?? rehearsal?.alert ?? null)
    if (bootMs >= goneAtMs) {
      content = null
      goneAtMs = Infinity
    }
    if (isBegun) void file.write(content)
  }

  /** Logs an alert of a former run once more, and continues its reminders. */
  async function begin(): Promise<void> {
    // A disk that hangs does not delay it.
    notify(current(), { resumed: true })
    const saved = await file.read<AlertRecord>((text) => {
      const value = parseJson(text)
      return isRecord(value) ? value : undefined
    })
    isBegun = true
    if (saved?.['state'] === 'resolved' && raised === null) {
      content = saved
      goneAtMs = keeper.now().bootMs + RESOLVED_MS
    }
    if (saved?.['state'] !== 'raised') return
    const { reason, since, askedBy } = saved
    // That it was raised is known from its file alone.
    if (reason === 'no-token') notify(current(true), { resumed: true })
    if (raised === null) return resolve({ reason, since, askedBy }, 'restart')
    if (raised.reason !== reason) return
    remindedAt = typeof saved['remindedAt'] === 'string' ? saved['remindedAt'] : undefined
    const ageMs = Date.parse(String(remindedAt ?? since)) - raised.since.wallMs
    reminders = remindersAt(ageMs, { ...raised, noTokenSince: saved['noTokenSince'] ? raised.since : null })
    setRaised(raised)
  }

  return {
    /** Maintains the alert until the signal is aborted. An alert that is raised then stays in alert.json. */
    async run(signal: AbortSignal): Promise<void> {
      const begun = begin()
      const ended = keeper.listenUntil(signal, check)
      await begun
      check()
      await ended
      await file.write(content)
    },
    reconfigure(next: AlertsConfig): void {
      settings = next
    },
    /** The alert that is raised; null: none. A rehearsal does not count. */
    current: () => current(),
    /** Raises an alert with `test: true` and resolves it after 10 s. Refused while an alert is raised. */
    test(): { value: AlertTestResult } {
      if (raised !== null)
        return { value: { outcome: 'refused', detail: `The alert ${raised.reason} is raised` } }
      const since = keeper.now()
      const nothing = { noTokenSince: null, failure: null, askedBy: null }
      const alert: Raised = { reason: 'test', detail: DETAIL_OF_REHEARSAL, since, ...nothing }
      rehearsal = { alert, untilMs: since.bootMs + REHEARSAL_MS }
      check()
      setTimeout(check, REHEARSAL_MS).unref()
      return { value: { outcome: 'raised', resolvesAt: isoTime(since.wallMs + REHEARSAL_MS) } }
    },
  }
}

function isoTime(wallMs: number): string {
  return new Date(wallMs).toISOString()
}
