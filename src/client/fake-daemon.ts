// The daemon of the fake client, in memory: what it has, and what it answers to a request.
import { createHash } from 'node:crypto'
import {
  answerTypes,
  FINGERPRINT_LENGTH,
  type Fault,
  type Phase,
  type RefreshResult,
  type RejectResult,
  type RequestType,
  type StatusResult,
  type TokenDescription,
} from '../protocol.ts'
import { checkedAnswer, WITHOUT_TOKEN } from './answers.ts'
import type { Frame } from './frames.ts'
import type { ClientToken } from './token-source.ts'

/** For how long a report is held if the test does not say it, as the daemon does. */
const HELD_SECONDS = 30
const STATES: Readonly<Record<string, Phase>> = {
  ready: 'ready',
  'no-token-yet': 'starting',
  'account-inactive': 'refused',
  'account-not-found': 'refused',
}

/** As the options of the fake client say it. */
interface FakeDaemonOptions {
  readonly accessToken?: string | undefined
  readonly lifeSeconds?: number | undefined
  readonly baseUrl?: string | undefined
}

/** `onChange` is called when there is another token, or another reason why there is none. */
export function createFakeDaemon(options: FakeDaemonOptions, onChange: () => void) {
  const { accessToken = 'fake-token-1', lifeSeconds = 3_600, baseUrl = 'https://api.example.com' } = options
  const reported: string[] = []
  let token = described(accessToken, 1)
  let absence: 'away' | Fault | undefined
  let reportResult: RejectResult | undefined
  /** By the last report of the current token: another one is to come. */
  let isAwaited = false

  function described(text: string, generation: number): ClientToken {
    const isoIn = (seconds: number): string => new Date(Date.now() + seconds * 1_000).toISOString()
    const made: ClientToken = {
      accessToken: text,
      tokenType: 'Bearer',
      header: 'Authorization',
      prefix: 'Bearer ',
      obtainedAt: isoIn(0),
      expiresAt: isoIn(lifeSeconds),
      expirySource: 'jwt',
      baseUrl,
      refusedBy: [401],
      refreshAt: isoIn((lifeSeconds * 2) / 3),
      generation,
      fingerprint: createHash('sha256').update(text).digest('hex').slice(0, FINGERPRINT_LENGTH),
      state: 'ready',
      stale: false,
    }
    if (checkedAnswer({ type: 'token.result', data: { ...made } }) !== undefined) return made
    throw new TypeError('kyc-tokend has no such token: visible ASCII, a life in seconds and an http URL.')
  }

  function description(): TokenDescription {
    const { accessToken: _, ...rest } = token
    return rest
  }

  /** Why there is no token. */
  function currentFault(): Fault | undefined {
    if (typeof absence === 'object') return absence
    const hasExpired = Date.parse(token.expiresAt) <= Date.now()
    return hasExpired ? { code: 'expired', message: 'The token of the fake has expired.' } : undefined
  }

  function rotate(text = `fake-token-${token.generation + 1}`): ClientToken {
    token = described(text, token.generation + 1)
    setAbsence(undefined)
    return token
  }

  function setAbsence(next: typeof absence): void {
    absence = next
    isAwaited = false
    onChange()
  }

  /** The answer to a report, as the daemon judges it. */
  function report(fingerprint: string): RejectResult {
    reported.push(fingerprint)
    const fault = currentFault()
    if (fault?.code.startsWith('account-') === true) return { verdict: 'refused' }
    if (fault !== undefined) return { verdict: 'refreshing' }
    if (fingerprint !== token.fingerprint) return { verdict: 'replaced' }
    if (reportResult === undefined) {
      rotate()
      return { verdict: 'refreshing' }
    }
    const { verdict } = reportResult
    isAwaited = verdict === 'refreshing' || verdict === 'held'
    const isLater = verdict === 'held' || verdict === 'unchanged'
    return isLater ? { retryAfterSeconds: HELD_SECONDS, ...reportResult } : reportResult
  }

  function refresh(): RefreshResult {
    if (typeof absence === 'object')
      return { outcome: 'failed', reason: absence.reason ?? absence.code, detail: absence.message }
    rotate()
    return { outcome: 'ok', ...description() }
  }

  function status(): StatusResult {
    const fault = currentFault()
    const since = token.obtainedAt
    const { code = 'ready', reason = 'network', message: detail = '' } = fault ?? {}
    const daemon = { version: 'fake', pid: process.pid, startedAt: since, configFile: '', host: 'localhost' }
    return {
      state: STATES[code] ?? 'expired',
      token: fault === undefined ? description() : null,
      failure: fault === undefined ? null : { reason, detail, since, attempts: 1 },
      nextAttemptAt: null,
      alert: null,
      files: [],
      clients: { ipc: { connections: 1, subscribers: 0 }, http: null },
      share: null,
      service: { baseUrl, lastRequestAt: since, lastSuccessAt: since, requests: token.generation },
      daemon: { ...daemon, configuration: { state: 'current', problem: null }, stateProblem: null },
    }
  }

  return {
    isAway: (): boolean => absence === 'away',
    /** True if the request waits for another token than this one, and the last report is to bring one. */
    isToWait({ data: { notFingerprint, waitSeconds } }: Frame): boolean {
      const hasToken = currentFault() === undefined
      return hasToken && isAwaited && notFingerprint === token.fingerprint && Number(waitSeconds) > 0
    },
    /** The answer to this request; a subscription has another at each change. */
    answerTo({ type, data }: Frame): Frame {
      const fault = currentFault()
      // That there is no token concerns requests for one alone.
      const isForToken = type === 'token.get' || type === 'token.subscribe'
      if (fault !== undefined && (isForToken || !WITHOUT_TOKEN.has(fault.code)))
        return { type: 'fault', data: { ...fault } }
      const answers: Partial<Record<string, () => object>> = {
        'status.get': status,
        'token.reject': () => report(String(data['fingerprint'])),
        'refresh.request': refresh,
        'alert.test': () => ({ outcome: 'raised' }),
      }
      return { type: answerTypes[type as RequestType], data: { ...(answers[type]?.() ?? token) } }
    },
    rotate,
    setAbsence,
    answerReports: (result: RejectResult): void => {
      reportResult = result
    },
    reported,
  }
}
