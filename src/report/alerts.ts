// Alerts: each is raised, repeated as a reminder, and resolved, in the log and in alert.json, which the
// operator's command reads. The state has the alert that is raised, so a restart repeats and loses none.
import type { AlertsConfig } from '../config/config.ts'
import { createManagedFile } from '../files/managed-file.ts'
import type { RemedyOf } from '../host/remedy.ts'
import type { Instant } from '../lib/clock.ts'
import type { Log } from '../lib/log.ts'
import type { AlertTestResult } from '../protocol.ts'
import type { Keeper } from '../token/keeper.ts'
import { currentAlert, type CurrentAlert } from '../token/selectors.ts'
import type { Notes } from '../token/state.ts'

type Note = NonNullable<Notes['alert']>

const SENTENCES: Readonly<Record<CurrentAlert['reason'] | 'test', string>> = {
  'account-inactive': 'The account is not active: the service gives it no token',
  'account-not-found': 'The service knows no account for these credentials',
  rejected: 'The service rejects the request for a token',
  'no-token': 'There has been no usable token for too long',
  test: 'This is a rehearsal of an alert',
}
/** A rehearsal is an alert like any other, so that it tries the whole way to the operator. */
const REHEARSAL = {
  reason: 'test',
  detail: 'Raised by `kyc-tokend alert-test`',
  noTokenSince: null,
  failure: null,
  askedBy: null,
} as const
const REHEARSAL_MS = 10_000
/** The time for which alert.json says that the alert is resolved. */
const RESOLVED_MS = 60_000

/** Without a token the failure behind it is what a person does something about. */
export function alertRemedy(
  { reason, failure }: Pick<CurrentAlert, 'failure'> & { reason: CurrentAlert['reason'] | 'test' },
  remedyOf: RemedyOf,
): string {
  return remedyOf(failure ?? reason)
}

export function createAlerts(options: {
  keeper: Pick<Keeper, 'state' | 'now' | 'listenUntil' | 'remember'>
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
  /** The file: changed only at an occasion for the operator, because each change runs the operator's command. */
  let content: Readonly<Record<string, unknown>> | null = null
  /** On the boot clock; infinite: it holds a raised alert, or nothing. */
  let goneAtMs = Infinity
  /** When the rehearsal began; null: there is none. */
  let rehearsedAt: Instant | null = null
  const file = createManagedFile(options.path, {
    // Readable by all: it holds no secret.
    desired: () =>
      content && { text: `${JSON.stringify(content)}\n`, attributes: { mode: 0o644 }, mayStay: () => true },
    log,
    event: 'alert-file-failed',
  })

  /** One that was raised as `no-token` stays while an attempt is due. */
  function current(): CurrentAlert | null {
    const isRaised = keeper.state().notes.alert?.reason === 'no-token'
    return currentAlert(keeper.state(), keeper.now(), settings.noTokenAfterMs, { isRaised })
  }

  const origin = () => ({ host: host(), account, contact: settings.contact ?? undefined })

  /**
   * Sets the file, and logs the alert if it is news. In a fleet the host that asked notifies a person: the others
   * log at `error`, and have no file.
   */
  function raise(
    alert: Omit<CurrentAlert, 'reason' | 'since'> & { reason: keyof typeof SENTENCES },
    { since, reminders, remindedAt }: Omit<Note, 'reason'>,
    { isNews }: { isNews: boolean },
  ): void {
    const { reason, detail, failure, noTokenSince, askedBy } = alert
    const message = SENTENCES[reason]
    const fields = {
      event: 'alert',
      reason,
      detail,
      remedy: alertRemedy(alert, remedyOf),
      failure: failure ?? undefined,
      ...origin(),
      since: isoTime(since.wallMs),
      noTokenSince: noTokenSince === null ? undefined : isoTime(noTokenSince.wallMs),
      askedBy: askedBy ?? undefined,
      test: reason === 'test' || undefined,
    }
    const reminder = remindedAt === null ? undefined : reminders
    if (isNews) log(askedBy === null ? 'alert' : 'error', message, { ...fields, reminder })
    const reminded = remindedAt === null ? {} : { remindedAt: isoTime(remindedAt) }
    content = askedBy === null ? { state: 'raised', message, ...fields, ...reminded } : null
    goneAtMs = Infinity
  }

  function resolve({ reason, since }: Pick<Note, 'reason' | 'since'>): void {
    const message = 'The alert is over'
    const ofAlert = {
      reason,
      ...origin(),
      since: isoTime(since.wallMs),
      test: reason === 'test' || undefined,
    }
    const fields = { event: 'alert-resolved', ...ofAlert }
    log('notice', message, fields)
    const { bootMs, wallMs } = keeper.now()
    content = content && { state: 'resolved', message, ...fields, resolvedAt: isoTime(wallMs) }
    goneAtMs = bootMs + RESOLVED_MS
  }

  /** The alert stands: raises it if it is new, or if it is time for a reminder. */
  function keepRaised(alert: CurrentAlert): void {
    const { bootMs, wallMs } = keeper.now()
    const { alert: noted } = keeper.state().notes
    const { reason } = alert
    const former = noted?.reason === reason ? noted : null
    const since = former?.since ?? alert.since
    const reminders = settings.remindAfterMs.filter((afterMs) => bootMs - since.bootMs >= afterMs).length
    const isNews = former === null || reminders > former.reminders
    const note = isNews ? { reason, since, reminders, remindedAt: former && wallMs } : former
    if (isNews) keeper.remember({ alert: note })
    // After a start the file may have to be made again.
    if (isNews || content?.['state'] !== 'raised') raise(alert, note, { isNews })
  }

  function check(): void {
    const { bootMs } = keeper.now()
    const alert = current()
    // A real one ends a rehearsal.
    if (rehearsedAt !== null && (alert !== null || bootMs >= rehearsedAt.bootMs + REHEARSAL_MS)) {
      resolve({ reason: 'test', since: rehearsedAt })
      rehearsedAt = null
    }
    const { alert: noted } = keeper.state().notes
    if (alert !== null) keepRaised(alert)
    else if (noted !== null) {
      keeper.remember({ alert: null })
      resolve(noted)
    }
    if (bootMs >= goneAtMs) {
      content = null
      goneAtMs = Infinity
    }
    void file.reconcile()
  }

  return {
    /** Maintains the alert until the signal is aborted. An alert that is raised then stays in alert.json. */
    async run(signal: AbortSignal): Promise<void> {
      check()
      await keeper.listenUntil(signal, check)
      await file.reconcile()
    },
    reconfigure(next: AlertsConfig): void {
      settings = next
    },
    /** The alert that is raised; null: none. A rehearsal does not count. */
    current,
    /** Raises an alert with `test: true` and resolves it after 10 s. Refused while an alert is raised. */
    test(): { value: AlertTestResult } {
      const standing = rehearsedAt === null ? current()?.reason : 'test'
      if (standing !== undefined)
        return { value: { outcome: 'refused', detail: `The alert ${standing} is raised` } }
      rehearsedAt = keeper.now()
      raise(REHEARSAL, { since: rehearsedAt, reminders: 0, remindedAt: null }, { isNews: true })
      void file.reconcile()
      setTimeout(check, REHEARSAL_MS).unref()
      return { value: { outcome: 'raised', resolvesAt: isoTime(rehearsedAt.wallMs + REHEARSAL_MS) } }
    },
  }
}

function isoTime(wallMs: number): string {
  return new Date(wallMs).toISOString()
}
