// A random story about the whole daemon, and a model of the contract that says what it must not do.
import type { RejectResult, StatusResult, TokenResult } from '../../src/protocol.ts'
import { isAboutCredentials, type FetchOutcome } from '../../src/token/outcome.ts'
import { createRandom } from '../support/random.ts'
import { createWorld, durationMs, type Change, type Harm, type ServiceAnswer, type World } from './world.ts'

export type Step =
  | { readonly do: 'service'; readonly answer: ServiceAnswer }
  | { readonly do: 'wait' | 'suspend' | 'clock' | 'need'; readonly ms: number }
  | { readonly do: 'reload'; readonly change: Change }
  | { readonly do: 'rotate'; readonly credentials: string }
  | { readonly do: 'reject' | 'operator' | 'restart' | 'reboot' | 'freeDisk' }
  | { readonly do: 'harm'; readonly what: Harm }
  /** A kill -9: `turns` of the loop after an operator asked, where that is above 0. */
  | { readonly do: 'crash'; readonly turns: number }

const GIVEN = { files: true, credentials: 'one', baseUrl: 'here', noTokenAfter: '10m' }
const NO_TOKEN_AFTER_MS = 600_000
const NO_TOKEN = { generation: 0, accessToken: '', baseUrl: '' }
const TICK_MS = 15_000
const CAP_MS = 60_000
/** The longest assumed life of the stories. */
const MAX_AGE_MS = 15 * 60_000
const CLIENT_PACE_MS = 30_000
const REJECTED_PACE_MS = 300_000
/** The clocks of the story go in fractions, and those of the answers in milliseconds. */
const GRAIN_MS = 2

/** What the service knows of one pair of credentials at one address; instants are on the boot clock. */
interface Account {
  isRefused: boolean
  /** Not to be asked before, by its own words. */
  notBeforeMs: number
  failures: number
  /** A person has acted since the last request. */
  isAllowed: boolean
  lastMs: number
  /** Rest of the token's life at the last failure: no wait is longer. */
  leftMs: number
}

/** Plays the story. Returns the rules that it broke, in sentences. */
export async function playStory(steps: readonly Step[], seed: number): Promise<readonly string[]> {
  const broken = new Set<string>()
  const accounts = new Map<string, Account>()
  let underWay = 0
  let clientAskedMs = -Infinity
  let requests = 0
  let credentials = GIVEN.credentials
  let baseUrl = GIVEN.baseUrl
  let maxDelayMs = CAP_MS
  /** End of the token that was given last; null: it does not say. */
  let endMs: number | null = 0
  /** The account that the daemon asks with. */
  let runningName = ''
  /** The newest token that was served. */
  let newest: Pick<TokenResult, 'generation' | 'accessToken' | 'baseUrl'> = NO_TOKEN
  let status: StatusResult | null = null
  /** The disk that is full, or was so until files are as they should be again. */
  let fullDisk: Harm | null = null
  /** The newest token must be served until its end. */
  let isKept = false
  let tokenlessMs = 0
  /** When the service last gave a token that does not say its end; after a reboot it is not known. */
  let opaqueMs = Infinity
  let isWallTrusted = true

  const world: World = createWorld(GIVEN, {
    random: createRandom(seed),
    onRequest({ name, cause }) {
      requests += 1
      check(underWay === 0, 'two requests at once')
      underWay += 1
      checkRequest(accountOf(name), cause)
    },
    onOutcome(name, outcome) {
      underWay -= 1
      // A pair that gives an expired token is not taken over.
      const isTaken =
        outcome?.kind === 'ok' && (expiryMs(outcome.accessToken) ?? Infinity) > world.serviceNowMs()
      if (isTaken) runningName = name
      if (outcome !== undefined) learn(accountOf(name), outcome, { isTrial: name !== runningName })
    },
  })

  function check(claim: boolean, sentence: string): void {
    if (!claim) broken.add(sentence)
  }

  function accountOf(name: string): Account {
    const known = accounts.get(name)
    const fresh = {
      isRefused: false,
      notBeforeMs: -Infinity,
      failures: 0,
      isAllowed: false,
      lastMs: -Infinity,
      leftMs: Infinity,
    }
    if (known === undefined) accounts.set(name, fresh)
    return known ?? fresh
  }
  /** The account of what lies on disk. */
  const nameOnDisk = (): string => `key-of-${credentials}@https://${baseUrl}.example/token/external/jwt`

  /** A person acts: an account may be asked once more. Waits that the service asked for hold. */
  function act(): void {
    for (const account of accounts.values()) Object.assign(account, { isRefused: false, isAllowed: true })
  }

  /** Without the knowledge of what was only tried: the files say what is asked with from now on. */
  async function start(): Promise<void> {
    if (runningName !== nameOnDisk())
      Object.assign(accountOf(nameOnDisk()), { isRefused: false, isAllowed: true })
    runningName = nameOnDisk()
    await world.start()
  }

  function checkRequest(account: Account, cause: string): void {
    const atMs = world.now().bootMs
    if (cause !== 'operator') {
      check(!account.isRefused, `a request after a refusal, because of ${cause}`)
      check(
        atMs >= account.notBeforeMs - GRAIN_MS,
        `a request before the time that was asked for, because of ${cause}`,
      )
      const delayMs = Math.min(CAP_MS, maxDelayMs, account.leftMs, 1_000 * 2 ** (account.failures - 1)) / 2
      const agoMs = atMs - account.lastMs
      const isEarly = account.failures > 0 && agoMs < delayMs - GRAIN_MS
      check(
        !isEarly || account.isAllowed,
        `a request ${agoMs} ms after failure ${account.failures}, because of ${cause}`,
      )
      if (isEarly) Object.assign(account, { isAllowed: false, failures: 0 })
    }
    if (cause === 'client') {
      check(atMs - clientAskedMs >= CLIENT_PACE_MS - GRAIN_MS, 'two requests caused by clients within 30 s')
      clientAskedMs = atMs
    }
  }

  function learn(account: Account, outcome: FetchOutcome, { isTrial }: { isTrial: boolean }): void {
    const atMs = world.now().bootMs
    account.lastMs = atMs
    account.isRefused = outcome.kind === 'permanent'
    // Another pair that lies in the files is tried first.
    if (isAboutCredentials(outcome)) for (const other of accounts.values()) other.isAllowed = true
    if (outcome.kind === 'permanent') account.failures = 0
    else if (outcome.kind === 'ok') {
      Object.assign(account, { failures: 0, notBeforeMs: -Infinity })
      const expMs = expiryMs(outcome.accessToken)
      if (expMs === null) opaqueMs = atMs
      endMs = expMs === null ? null : atMs + expMs - world.serviceNowMs()
    } else {
      // Of an opaque token this model does not know the end.
      const leftMs = endMs === null ? 0 : endMs > atMs ? endMs - atMs : Infinity
      account.leftMs = Math.max(1_000, leftMs)
      account.failures += 1
      const { reason, retryAfterMs } = outcome as { reason?: string; retryAfterMs?: number }
      // The pace is the running pair's: one that was only tried is asked with at once when it is in use.
      const isPaced = reason === 'rejected' && !isTrial
      const paceMs = isPaced ? Math.min(REJECTED_PACE_MS, account.leftMs / 2) : 0
      const boundMs = Math.max(retryAfterMs ?? 0, paceMs)
      account.notBeforeMs = Math.max(account.notBeforeMs, boundMs > 0 ? atMs + boundMs : -Infinity)
    }
  }

  async function take(step: Step): Promise<void> {
    switch (step.do) {
      case 'service':
        return world.service(step.answer)
      case 'wait':
        return world.wait(step.ms)
      case 'suspend':
        return world.suspend(step.ms)
      case 'clock':
        isWallTrusted = false
        return world.setClock(step.ms)
      case 'need':
        return world.need(step.ms)
      case 'reject':
        await world.ask<RejectResult>('token.reject', {
          fingerprint: status?.token?.fingerprint ?? '0'.repeat(16),
        })
        return
      case 'operator':
        act()
        return world.signal()
      case 'reload':
        // Another service drops the token, and the way back does not bring it back.
        if (step.change.baseUrl !== undefined && step.change.baseUrl !== baseUrl) isKept = false
        ;({ credentials = credentials, baseUrl = baseUrl } = step.change)
        maxDelayMs = durationMs(step.change.maxDelay ?? '5m')
        act()
        runningName = nameOnDisk()
        return world.reload(step.change)
      case 'rotate':
        credentials = step.credentials
        act()
        return world.rotate(step.credentials)
      case 'harm':
        // A state disk that is free again has nothing of before until the next save.
        if (step.what === 'state' || (step.what === 'run' && fullDisk === null)) fullDisk = step.what
        return world.harm(step.what)
      case 'freeDisk':
        return world.freeDisk()
      case 'restart':
        act()
        await world.stop()
        forgetUnwritten()
        return start()
      case 'crash':
        await crash(step.turns)
        forgetUnwritten()
        return start()
      case 'reboot':
        await world.reboot()
        forgetClock()
        forgetUnwritten()
        return start()
    }
  }

  /** An answer that came in the last moment may be lost; that the service was asked is not. */
  async function crash(turns: number): Promise<void> {
    const before = new Map([...accounts].map(([name, account]) => [name, { ...account }]))
    const asked = requests
    await world.crash(turns)
    if (asked === requests) return
    for (const [name, account] of accounts) {
      const { notBeforeMs = -Infinity, failures = 0 } = before.get(name) ?? {}
      const isAnswered = account.failures === 0
      Object.assign(account, { isRefused: false, notBeforeMs, failures: isAnswered ? 0 : failures + 1 })
    }
  }

  /** A daemon that ended is without the facts that its disk could not take. */
  function forgetUnwritten(): void {
    isKept = false
    if (fullDisk === null) return
    newest = NO_TOKEN
    if (fullDisk !== 'state') return
    accounts.clear()
    clientAskedMs = -Infinity
  }

  /** The boot clock begins again: only what the model can still know holds. */
  function forgetClock(): void {
    for (const account of accounts.values()) {
      const { isRefused } = account
      Object.assign(account, { ...accountOf(''), isRefused: isRefused && isWallTrusted })
    }
    accounts.delete('')
    clientAskedMs = -Infinity
    opaqueMs = Infinity
    tokenlessMs = world.now().bootMs
    isWallTrusted = true
  }

  async function look({ isSettled }: { isSettled: boolean }): Promise<void> {
    status = await world.ask<StatusResult>('status.get')
    const shown = [JSON.stringify(status), world.file('run/alert.json')].join()
    check(!/(?:key|secret)-of-/.test(shown), 'a key or a secret is shown')
    const served = await world.ask<TokenResult>('token.get')
    const token = 'accessToken' in served ? served : null
    const nowMs = world.now().bootMs
    const expMs = expiryMs(newest.accessToken) ?? 0
    const isGood = isKept && newest.baseUrl.includes(baseUrl) && expMs > world.serviceNowMs() + GRAIN_MS
    check(token !== null || !isGood, 'a good token is not served')
    if (token !== null) {
      tokenlessMs = nowMs
      checkToken(token)
      check(!token.stale || status.state !== 'ready', 'ready with a stale token')
    } else if (isKept) {
      // It was good until its end, of which an opaque one says nothing.
      const endedAgoMs = Math.max(0, world.serviceNowMs() - (expiryMs(newest.accessToken) ?? Infinity))
      tokenlessMs = Math.max(tokenlessMs, nowMs - endedAgoMs)
    }
    isKept = token !== null
    if (!isSettled) return
    check(world.hasSocket(), 'a removed socket does not come back')
    // A former token may stay, until its end, in a file that cannot be written.
    const written = world.file('run/token')
    const isFormerGood = world.isFull() && (expiryMs(written) ?? Infinity) > world.serviceNowMs() - GRAIN_MS
    const isAllowed = ['', token?.accessToken ?? ''].includes(written) || isFormerGood
    check(isAllowed, 'another token is left in its file')
    const kept = world.file('run/kept.json')
    check(kept === '' || kept.includes(token?.accessToken ?? ''), 'another token is kept')
    if (world.isFull()) return
    fullDisk = null
    checkAlert(status, nowMs - tokenlessMs)
    check(written === (token?.accessToken ?? ''), 'the token file has another token than the sockets')
    const alertMs = Date.parse(status.alert?.since ?? '') - world.now().wallMs
    const isAlertWritten = world.file('run/alert.json') !== ''
    // Raised by time alone it is written at the next tick.
    if (!(alertMs > -TICK_MS))
      check(isAlertWritten === (status.alert !== null), 'alert.json is not what status says')
    if (token !== null)
      check(world.file('run/kept.json').includes(token.accessToken), 'the token is not kept')
  }

  function checkToken(token: TokenResult): void {
    check(token.generation >= newest.generation, 'an older token is served')
    check(
      token.generation > newest.generation || token.accessToken === newest.accessToken,
      'two tokens have one number',
    )
    newest = token
    const isOld = expiryMs(token.accessToken) === null && world.now().bootMs - opaqueMs > MAX_AGE_MS
    check(token.stale || !isOld, 'an old token that is not stale')
    const expMs = expiryMs(token.accessToken) ?? Infinity
    check(expMs > world.serviceNowMs() - GRAIN_MS, 'an expired token is served')
    check(token.baseUrl.includes(baseUrl), 'a token of another service is served')
  }

  function checkAlert({ state, alert, failure, token }: StatusResult, tokenlessForMs: number): void {
    const reason = alert?.reason ?? null
    if (state === 'refused') check(reason?.startsWith('account-') === true, 'a refusal raises no alert')
    if (failure?.reason === 'rejected') check(reason !== null, 'a rejection raises no alert')
    if (reason === 'no-token') check(token === null, 'an alert that there is no token, and there is one')
    const isLong = tokenlessForMs > NO_TOKEN_AFTER_MS + 2 * TICK_MS && failure !== null
    if (token === null && isLong) check(reason !== null, 'no token for long, and no alert')
  }

  /** The next attempt comes when status said, where nothing else happens. */
  async function wait(ms: number): Promise<void> {
    const before = requests
    const planMs = (Date.parse(status?.nextAttemptAt ?? '') || Infinity) - world.now().wallMs
    const aheadMs = Math.min(ms, planMs - GRAIN_MS)
    if (aheadMs > 0) await world.wait(aheadMs)
    check(requests === before || aheadMs <= 0, 'a request before the time that status gave')
    if (ms > aheadMs) await world.wait(Math.min(ms - Math.max(0, aheadMs), 2 * GRAIN_MS))
    if (ms > planMs + GRAIN_MS && planMs > 0)
      check(requests > before, 'no request at the time that status gave')
    const restMs = ms - Math.max(0, aheadMs) - 2 * GRAIN_MS
    if (restMs > 0) await world.wait(restMs)
  }

  /** The service is well, and an operator asks: there is a token, and all is over. */
  async function heal(): Promise<void> {
    world.freeDisk()
    world.service({ jwt: 'healed', life: '1h' })
    await world.wait(CAP_MS)
    await look({ isSettled: false })
    const isWell = status?.state === 'ready' && status.daemon.configuration.state === 'current'
    if (!isWell) await take({ do: 'operator' })
    await world.wait(CAP_MS + 2 * TICK_MS)
    await look({ isSettled: true })
    check(status?.state === 'ready' && status.alert === null, `${status?.state} though the service is well`)
    check(status?.daemon.configuration.state === 'current', 'changed files that are not taken over')
  }

  try {
    tokenlessMs = world.now().bootMs
    await start()
    await look({ isSettled: false })
    let isDisturbed = false
    for (const step of steps) {
      // Another pair in the files is tried at its own times.
      const isPlanned = !isDisturbed && runningName === nameOnDisk()
      if (step.do === 'wait' && isPlanned) await wait(step.ms)
      else await take(step)
      // A clock that went on alone, or files that were written: what was planned is acted on within a tick.
      isDisturbed = ['suspend', 'clock', 'rotate'].includes(step.do) || (isDisturbed && step.do !== 'wait')
      const isSettled = step.do === 'wait' && step.ms >= 2 * TICK_MS && !isDisturbed
      await look({ isSettled })
    }
    await heal()
    await world.stop()
    const logged = world.logged()
    const isSecretLogged = /(?:key|secret)-of-/.test(logged) || logged.includes(newest.accessToken)
    check(!isSecretLogged, 'a token or a secret is in the log')
    return [...broken]
  } finally {
    await world.end()
  }
}

/** The `exp` of a token, in ms since the epoch; null: it has none. */
function expiryMs(accessToken: string): number | null {
  const [, payload = ''] = accessToken.split('.')
  const { exp } = JSON.parse(Buffer.from(payload, 'base64url').toString() || '{}') as { exp?: number }
  return exp === undefined ? null : exp * 1_000
}
