// Alerts: what an operator must know of, in the log and in alert.json. Raised once, said again after a while, and ended.
import type { Stats } from 'node:fs'
import { clearLeftovers, onFile, removeFile, replaceFile } from '../lib/atomic-file.ts'
import { errorMessage } from '../lib/error.ts'
import { lstatIfAny, readSmallFile } from '../lib/file-calls.ts'
import type { Log, LogFields } from '../lib/log.ts'
import { remedyFor } from '../token/remedy.ts'
import type { Alert } from '../token/state.ts'
import { follow, type Watched } from './follow.ts'

export interface Alerts {
  /** Until the signal is aborted. An alert that stands then stays in alert.json: the next start judges it anew. */
  run(signal: AbortSignal): Promise<void>
}

const SENTENCES = {
  'account-inactive': 'The account is not active: the service gives it no token',
  'account-not-found': 'The service knows no account for these credentials',
  rejected: 'The service rejects the request for a token',
} as const satisfies Record<Alert['reason'], string>
const OVER = 'The alert is over'
const MODE = 0o644
const MAX_FILE_BYTES = 64 * 1024

/** The alert is a fact of the keeper's state; `remindAfterMs` are counted from its beginning, restarts or not. */
export function createAlerts(options: {
  keeper: Watched
  log: Log
  /** alert.json, absolute. */
  path: string
  remindAfterMs: () => readonly number[]
  /** How this host is to be named. */
  host: () => string
}): Alerts {
  const { keeper, log, path, host } = options
  const file = createAlertFile(path, log)
  let raised: Alert | null = null
  let reminders = 0

  const fieldsOf = (alert: Alert): LogFields => ({
    event: 'alert',
    reason: alert.reason,
    detail: alert.detail,
    remedy: remedyFor(alert.reason),
    host: host(),
    since: new Date(alert.since.wallMs).toISOString(),
  })

  function say(alert: Alert, occasion: { standing?: true; reminder?: number }): void {
    log('alert', SENTENCES[alert.reason], { ...fieldsOf(alert), ...occasion })
  }

  /** Written when it is raised and then left alone, so that who watches the file is told once. */
  function write(alert: Alert): void {
    file.want(`${JSON.stringify({ level: 'alert', message: SENTENCES[alert.reason], ...fieldsOf(alert) })}\n`)
  }

  function reminderOf(alert: Alert): number {
    const ageMs = keeper.now().bootMs - alert.since.bootMs
    return options.remindAfterMs().filter((afterMs) => ageMs >= afterMs).length
  }

  function look(): void {
    const { alert } = keeper.state()
    const before = raised
    raised = alert
    if (alert === null) {
      if (before !== null) tellResolved(before)
      file.want(null)
      return
    }
    const reminder = reminderOf(alert)
    if (before?.reason !== alert.reason) {
      say(alert, {})
      write(alert)
    } else if (reminder > reminders) {
      say(alert, { reminder })
    }
    reminders = reminder
    file.look()
  }

  function tellResolved({ reason, since }: Alert): void {
    const state = keeper.state()
    log('notice', OVER, {
      event: 'alert-resolved',
      reason,
      since: new Date(since.wallMs).toISOString(),
      lastedSeconds: Math.round((keeper.now().bootMs - since.bootMs) / 1000),
      by: state.kind === 'held' && state.askNow === null ? 'token' : 'reload',
      host: host(),
    })
  }

  /** An alert that stood when the daemon ended stands still: it is said once more. */
  function begin(): void {
    raised = keeper.state().alert
    if (raised === null) return
    reminders = reminderOf(raised)
    say(raised, { standing: true })
    write(raised)
  }

  return {
    async run(signal) {
      begin()
      const isOver = raised === null
      const following = follow(keeper, signal, look)
      const left = await file.begin()
      if (isOver && left !== null) {
        log('notice', OVER, { event: 'alert-resolved', ...left, by: 'restart', host: host() })
      }
      await following
      await file.settled()
    },
  }
}

/** What a file keeps from its making on, whatever it is given and renamed to. */
const TRAITS = ['dev', 'ino', 'mode', 'uid', 'gid'] as const

/** alert.json: brought to what is wanted, one write at a time; what fails is told once, and tried again at the next look. */
interface AlertFile {
  /** Clears what a crash left; gives reason and beginning of the alert that the file held. From here on it is written. */
  begin(): Promise<{ reason: unknown; since: unknown } | null>
  /** The content that the file is to have; null: none, and no file. */
  want(content: string | null): void
  /** Tries again what failed, and restores what somebody removed or changed behind our back. */
  look(): void
  /** Resolves when nothing is being written. */
  settled(): Promise<void>
}

function createAlertFile(path: string, log: Log): AlertFile {
  let wanted: string | null = null
  let held: string | null | undefined
  /** What was said of the file before it got its content. */
  let ours: Stats | null = null
  /** When it last changed, once it had its content and its name; null: not looked at since. */
  let settledAtMs: number | null = null
  let problem = ''
  let work = Promise.resolve()
  /** Until it has begun, too. */
  let isBusy = true
  let isLookedForAgain = false

  async function attempt(): Promise<boolean> {
    const content = wanted
    try {
      if (content === null) await removeFile(path)
      else ours = await replaceFile(path, content, { mode: MODE })
      settledAtMs = null
      held = content
      problem = ''
      return true
    } catch (error) {
      tell(errorMessage(error))
      return false
    }
  }

  function tell(message: string): void {
    if (message === problem) return
    problem = message
    log('error', 'alert.json cannot be brought up to date', {
      event: 'alert-file-failed',
      path,
      error: message,
    })
  }

  async function bringUp(): Promise<void> {
    isBusy = true
    while (isLookedForAgain) {
      isLookedForAgain = false
      const isRepair = held === wanted && !(await isUntouched())
      if (isRepair) held = undefined
      while (held !== wanted && (await attempt()));
      if (isRepair && held === wanted) tellRestored()
    }
    isBusy = false
  }

  /** What cannot be looked at is tried anew, and then told. */
  async function isUntouched(): Promise<boolean> {
    const now = await onFile(path, lstatIfAny(path)).catch(() => undefined)
    if (typeof held !== 'string') return now === null
    if (!now || TRAITS.some((trait) => now[trait] !== ours?.[trait])) return false
    settledAtMs ??= now.ctimeMs
    return now.ctimeMs === settledAtMs && now.size === Buffer.byteLength(held)
  }

  function tellRestored(): void {
    log('warning', 'Restored a file that was changed behind our back', { event: 'file-restored', path })
  }

  function look(): void {
    isLookedForAgain = true
    if (!isBusy) work = bringUp()
  }

  return {
    async begin() {
      await clearLeftovers(path).catch((error: unknown) => {
        tell(errorMessage(error))
      })
      const left = await onFile(path, readSmallFile(path, MAX_FILE_BYTES)).then(
        ({ content }) => alertIn(String(content)),
        // Not there, or not readable: then nothing is known of it.
        () => null,
      )
      isBusy = false
      look()
      return left
    },
    want(content) {
      wanted = content
      look()
    },
    look,
    settled: async () => work,
  }
}

function alertIn(text: string): { reason: unknown; since: unknown } | null {
  try {
    const { reason, since } = JSON.parse(text) as { reason?: unknown; since?: unknown }
    return { reason, since }
  } catch {
    // Not what we wrote.
    return null
  }
}
