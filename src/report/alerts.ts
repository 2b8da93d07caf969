// Alerts: each is raised, repeated as a reminder, and resolved, in the log and in the files that the
// operator's command reads.
import { dirname, join } from 'node:path'
import type { Config } from '../config/config.ts'
import { isRecord, parseJson } from '../lib/input.ts'
import type { Log } from '../lib/log.ts'
import { createOwnFile } from '../files/own-file.ts'
import { OWN_FILES } from '../host/paths.ts'
import type { RemedyOf } from '../host/remedy.ts'
import type { AlertTestResult } from '../protocol.ts'
import { currentAlert, type CurrentAlert } from '../token/current-alert.ts'
import type { KeeperView } from '../token/keeper.ts'

export type AlertSettings = Config['alerts']

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
const OVER = 'The alert is over'

/** Without a token the failure behind it is what a person does something about. */
export function alertRemedy(
  { reason, failure }: Pick<Raised, 'reason' | 'failure'>,
  remedyOf: RemedyOf,
): string {
  return remedyOf(failure ?? reason)
}
const REHEARSAL_MS = 10_000
const REHEARSAL = {
  reason: 'test',
  detail: 'Raised by `kyc-tokend alert-test`',
  noTokenSince: null,
  failure: null,
  askedBy: null,
} as const

/** The last notification of the operator. */
interface Notified {
  readonly raised: Raised | null
  readonly reminders: number
  /** ISO 8601. */
  readonly remindedAt: string | null
}
const NOTHING_NOTIFIED: Notified = { raised: null, reminders: 0, remindedAt: null }

export function createAlerts(options: {
  keeper: KeeperView
  log: Log
  /** alert.json, absolute. */
  path: string
  settings: AlertSettings
  host: () => string
  /** Of which account; undefined: the default one. */
  account: string | undefined
  remedyOf: RemedyOf
}) {
  const { keeper, log, host, account, remedyOf } = options
  let { settings } = options
  const files = createAlertFiles(options.path, log)
  let notified: Notified = NOTHING_NOTIFIED
  /** The alert.json of a former run has been read: from now on the files are written. */
  let isBegun = false
  let rehearsal: { readonly alert: Raised; readonly untilMs: number } | null = null

  /** `isRaised`: one that was raised as `no-token` goes on while an attempt is due. */
  function current(isRaised = notified.raised?.reason === 'no-token'): CurrentAlert | null {
    return currentAlert(keeper.state(), keeper.now(), settings.noTokenAfterMs, { isRaised })
  }

  /** The reminders due at this age: one more, once there has been no usable token for too long. */
  function remindersAt(ageMs: number, { reason, isTokenless }: { reason: string; isTokenless: boolean }) {
    const byAge = settings.remindAfterMs.filter((afterMs) => ageMs >= afterMs).length
    return isTokenless && reason !== 'no-token' ? byAge + 1 : byAge
  }

  const origin = (): AlertRecord => ({
    host: host(),
    account,
    contact: settings.contact ?? undefined,
  })

  function fieldsOf(alert: Raised): AlertRecord {
    return {
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

  /**
   * Logs the alert and writes its file. In a fleet the host that asked logs at `alert`, to wake one person,
   * the others at `error`.
   */
  function announce(alert: Raised, occasion: { reminder?: number; resumed?: true }): void {
    const fields = { event: 'alert', ...fieldsOf(alert), ...occasion }
    if (alert.askedBy === null) log('alert', SENTENCES[alert.reason], fields)
    else log('error', SENTENCES[alert.reason], fields)
    writeAlert(alert)
  }

  /** Only at an occasion for the operator, because each change of the file runs the operator's command. */
  function writeAlert(alert: Raised): void {
    files.setRaised({
      level: 'alert',
      message: SENTENCES[alert.reason],
      event: 'alert',
      ...fieldsOf(alert),
      remindedAt: notified.remindedAt ?? undefined,
    })
  }

  /** `alert`: the fields of the one that is over. */
  function resolve(alert: AlertRecord, by: string): void {
    const fields = { ...alert, by, ...origin(), test: alert['reason'] === 'test' || undefined }
    log('notice', OVER, { event: 'alert-resolved', ...fields })
    const resolvedAt = isoTime(keeper.now().wallMs)
    files.setResolved({ level: 'notice', message: OVER, event: 'alert-resolved', ...fields, resolvedAt })
  }

  function resolveRaised({ reason, since, askedBy }: Raised): void {
    const { lastSuccessAt } = keeper.state()
    const isByToken = lastSuccessAt !== null && lastSuccessAt.bootMs > since.bootMs
    const by = reason === 'test' ? 'test' : isByToken ? 'token' : 'reload'
    const lastedSeconds = Math.round((keeper.now().bootMs - since.bootMs) / 1000)
    resolve({ reason, since: isoTime(since.wallMs), lastedSeconds, askedBy: askedBy ?? undefined }, by)
  }

  /** The alert that has to be raised now. A real one ends a rehearsal. */
  function alertToRaise(): Raised | null {
    const real = current()
    if (real !== null || (rehearsal !== null && keeper.now().bootMs >= rehearsal.untilMs)) rehearsal = null
    return real ?? rehearsal?.alert ?? null
  }

  /**
   * Notifies the operator of what is new: this alert is raised, it is time for a reminder, or there is none.
   */
  function notify(alert: Raised | null, resumed: { resumed?: true } = {}): void {
    const { raised: former, reminders: before } = notified
    // Of two alerts the second takes the place of the first, which is over only if it was a rehearsal.
    if (former !== null && (alert === null || (former.reason === 'test' && alert.reason !== 'test')))
      resolveRaised(former)
    if (alert === null) {
      notified = NOTHING_NOTIFIED
      return files.setRaised(null)
    }
    const now = keeper.now()
    const { reason, since, noTokenSince } = alert
    const reminders = remindersAt(now.bootMs - since.bootMs, { reason, isTokenless: noTokenSince !== null })
    if (former?.reason !== reason) {
      notified = { raised: alert, reminders, remindedAt: null }
      announce(alert, resumed)
    } else if (reminders > before) {
      notified = { raised: alert, reminders, remindedAt: isoTime(now.wallMs) }
      announce(alert, { reminder: reminders, ...resumed })
    } else {
      notified = { ...notified, raised: alert }
    }
  }

  function check(): void {
    notify(alertToRaise())
    if (isBegun) void files.reconcile()
  }

  /** Logs an alert of a former run once more, and continues its reminders. */
  async function begin(): Promise<void> {
    // A disk that hangs does not delay it.
    notify(current(), { resumed: true })
    const saved = await files.begin()
    isBegun = true
    if (saved === null) return
    const { reason, since, askedBy, noTokenSince, remindedAt } = saved
    // That it was raised is known from its file alone.
    if (reason === 'no-token') notify(current(true), { resumed: true })
    const { raised } = notified
    if (raised === null) return resolve({ reason, since, askedBy }, 'restart')
    if (raised.reason !== reason) return
    const ageMs = Date.parse(String(remindedAt ?? since)) - raised.since.wallMs
    const reminders = remindersAt(ageMs, { ...raised, isTokenless: noTokenSince !== undefined })
    notified = { raised, reminders, remindedAt: typeof remindedAt === 'string' ? remindedAt : null }
    writeAlert(raised)
  }

  return {
    /** Maintains the alert until the signal is aborted. An alert that is raised then stays in alert.json. */
    async run(signal: AbortSignal): Promise<void> {
      const begun = begin()
      const ended = keeper.listenUntil(signal, check)
      await begun
      check()
      await ended
      await files.reconcile()
    },
    reconfigure(next: AlertSettings): void {
      settings = next
    },
    /** The alert that is raised; null: none. A rehearsal does not count. */
    current: () => current(),
    /** Raises an alert with `test: true` and resolves it after 10 s. Refused while an alert is raised. */
    test(): { value: AlertTestResult } {
      if (notified.raised !== null)
        return { value: { outcome: 'refused', detail: `The alert ${notified.raised.reason} is raised` } }
      const since = keeper.now()
      rehearsal = { alert: { ...REHEARSAL, since }, untilMs: since.bootMs + REHEARSAL_MS }
      check()
      setTimeout(check, REHEARSAL_MS).unref()
      return { value: { outcome: 'raised', resolvesAt: isoTime(since.wallMs + REHEARSAL_MS) } }
    },
  }
}

function isoTime(wallMs: number): string {
  return new Date(wallMs).toISOString()
}

/** alert.json while an alert is raised, and alert-resolved.json once it is over. */
function createAlertFiles(path: string, log: Log) {
  let raised: AlertRecord | null = null
  let resolved: AlertRecord | null = null
  const failure = { sentence: 'An alert file cannot be brought up to date', event: 'alert-file-failed' }
  // Readable by all: they hold no secret.
  const options = { mode: 0o644, log, failure }
  const raisedFile = createOwnFile(path, options)
  const resolvedFile = createOwnFile(join(dirname(path), OWN_FILES.runtimeDirectory.alertResolved), options)
  let work = Promise.resolve()

  async function write(): Promise<void> {
    // The present alert: if it ends during the writes, the next call removes it.
    const alert = raised
    if (resolved !== null) await resolvedFile.write(resolved)
    await raisedFile.write(alert)
  }

  return {
    /** The content of the alert.json of a former run; null: there is none. */
    async begin(): Promise<AlertRecord | null> {
      return raisedFile.read((text) => {
        const saved = parseJson(text)
        return isRecord(saved) ? saved : undefined
      })
    },
    /** Sets the content of alert.json; null: the file is removed once alert-resolved.json is written. */
    setRaised(alert: AlertRecord | null): void {
      raised = alert
    },
    setResolved(alert: AlertRecord): void {
      resolved = alert
    },
    /**
     * Writes what is new, and restores what was changed or could not be written. One at a time, so that
     * alert-resolved.json is there before alert.json goes.
     */
    async reconcile(): Promise<void> {
      work = work.then(write)
      await work
    },
  }
}
