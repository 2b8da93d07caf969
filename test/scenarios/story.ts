// A random story about the whole daemon, and a model of the contract that says what it must not do.
import type { RejectResult, StatusResult, TokenResult } from '../../src/protocol.ts'
import type { ServiceOutcome } from '../../src/token/outcome.ts'
import { brokenByRecords, recordsOfLines } from '../rules/records.ts'
import { createRequests } from '../rules/requests.ts'
import { checkWith, sentenceOf, type Broke } from '../rules/rules.ts'
import { checkAlert, createHanded, createTokenless, type Shown } from '../rules/tokens.ts'
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
/** The clocks of the story go in fractions, and those of the answers in milliseconds. */
const GRAIN_MS = 2

/** Plays the story. Returns the rules that it broke, in sentences. */
export async function playStory(steps: readonly Step[], seed: number): Promise<readonly string[]> {
  const broken = new Set<string>()
  const broke: Broke = (rule, detail) => broken.add(sentenceOf(rule, detail))
  const requestRules = createRequests(broke, { grainMs: GRAIN_MS })
  const handed = createHanded(broke, { grainMs: GRAIN_MS })
  /** The accounts that the service has ever refused. */
  const refusedOnce = new Set<string>()
  let underWay = 0
  let requests = 0
  let credentials = GIVEN.credentials
  let baseUrl = GIVEN.baseUrl
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
  let tokenless = createTokenless(0)
  /** When the service last gave a token that does not say its end; after a reboot it is not known. */
  let opaqueMs = Infinity
  let isWallTrusted = true

  const world: World = createWorld(GIVEN, {
    random: createRandom(seed),
    onRequest({ name, cause }) {
      requests += 1
      checkRule(underWay === 0, 'one-at-a-time')
      underWay += 1
      requestRules.asked(name, { cause, atMs: world.now().bootMs, isTrial: name !== runningName })
    },
    onOutcome(name, outcome) {
      underWay -= 1
      // A pair that gives an expired token is not taken over.
      const isTaken =
        outcome?.kind === 'ok' && (expiryMs(outcome.accessToken) ?? Infinity) > world.serviceNowMs()
      if (isTaken) runningName = name
      if (outcome?.kind === 'permanent') refusedOnce.add(name)
      if (outcome !== undefined && outcome.kind !== 'postponed')
        learn(name, outcome, { isTrial: name !== runningName })
    },
  })

  function check(claim: boolean, sentence: string): void {
    if (!claim) broken.add(sentence)
  }
  const checkRule = checkWith(broke)

  /** The account of what lies on disk. */
  const nameOnDisk = (): string => `key-of-${credentials}@https://${baseUrl}.example/token/external/jwt`

  /** A person acts: an account may be asked once more. Waits that the service asked for hold. */
  function act(): void {
    requestRules.of(nameOnDisk())
    requestRules.acted(world.now().bootMs)
  }

  /** Without the knowledge of what was only tried: the files say what is asked with from now on. */
  async function start(): Promise<void> {
    const { bootMs } = world.now()
    if (runningName !== nameOnDisk()) requestRules.acted(bootMs, [nameOnDisk()])
    runningName = nameOnDisk()
    await world.start()
  }

  function learn(name: string, outcome: ServiceOutcome, { isTrial }: { isTrial: boolean }): void {
    const atMs = world.now().bootMs
    const expMs = outcome.kind === 'ok' ? expiryMs(outcome.accessToken) : null
    if (outcome.kind === 'ok') {
      tokenless.unsure()
      if (expMs === null) opaqueMs = atMs
      endMs = expMs === null ? null : atMs + expMs - world.serviceNowMs()
    }
    // Of an opaque token this model does not know the end.
    const leftMs = endMs === null ? 0 : endMs > atMs ? endMs - atMs : Infinity
    requestRules.answered(name, outcome, { atMs, leftMs, isTrial })
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
        // Another service drops the token and forgets refusals and waits; the way back does not bring them back.
        if (step.change.baseUrl !== undefined && step.change.baseUrl !== baseUrl) {
          isKept = false
          requestRules.accounts.clear()
        }
        ;({ credentials = credentials, baseUrl = baseUrl } = step.change)
        requestRules.setMaxDelay(durationMs(step.change.maxDelay ?? '5m'))
        act()
        // Another service is in use at once, another pair once it has given a token.
        if (!runningName.endsWith(`@https://${baseUrl}.example/token/external/jwt`))
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
    const { accounts } = requestRules
    const before = new Map([...accounts].map(([name, account]) => [name, { ...account }]))
    const asked = requests
    await world.crash(turns)
    if (asked === requests) return
    for (const [name, account] of accounts) {
      const { notBeforeMs = -Infinity, rejectedUntilMs = -Infinity, failures = 0 } = before.get(name) ?? {}
      const isAnswered = account.failures === 0
      const facts = { isRefused: false, notBeforeMs, rejectedUntilMs }
      Object.assign(account, { ...facts, failures: isAnswered ? 0 : failures + 1 })
    }
  }

  /** A daemon that ended is without the facts that its disk could not take. */
  function forgetUnwritten(): void {
    isKept = false
    if (fullDisk === null) return
    newest = NO_TOKEN
    handed.forget()
    if (fullDisk !== 'state') return
    requestRules.forgetAll()
    tokenless.unsure()
  }

  /** The boot clock begins again: only what the model can still know holds. */
  function forgetClock(): void {
    const refused = [...requestRules.accounts].filter(([, { isRefused }]) => isRefused && isWallTrusted)
    requestRules.forgetAll()
    for (const [name] of refused) requestRules.of(name).isRefused = true
    opaqueMs = Infinity
    tokenless.reboot(world.awakeMs())
    isWallTrusted = true
  }

  async function look({ isSettled }: { isSettled: boolean }): Promise<void> {
    status = await world.ask<StatusResult>('status.get')
    const shown = [JSON.stringify(status), world.file('run/alert.json')].join()
    check(!/(?:key|secret)-of-/.test(shown), 'a key or a secret is shown')
    const served = await world.ask<TokenResult>('token.get')
    const token = 'accessToken' in served ? served : null
    const expMs = expiryMs(newest.accessToken) ?? 0
    const isGood = isKept && newest.baseUrl.includes(baseUrl) && expMs > world.serviceNowMs() + GRAIN_MS
    checkRule(token !== null || !isGood, 'good-token')
    if (token !== null) {
      checkToken(token)
      check(!token.stale || status.state !== 'ready', 'ready with a stale token')
    }
    // A token is good until its end, of which an opaque one says nothing.
    const endedAgoMs = Math.max(0, world.serviceNowMs() - (expiryMs(newest.accessToken) ?? Infinity))
    const none = tokenless.seen(token !== null, { awakeMs: world.awakeMs(), endedAgoMs })
    isKept = token !== null
    if (status.state === 'refused')
      check(refusedOnce.has(runningName), 'refused for a pair that no token has confirmed')
    if (!isSettled) return
    const isOther = runningName !== nameOnDisk()
    check(
      !isOther || status.daemon.configuration.pair !== undefined,
      'another pair is in the files, and is not named',
    )
    check(isOther || (status.candidate ?? null) === null, 'the running pair is tried')
    // A former token may stay, until its end, in a file that cannot be written.
    const written = world.file('run/token')
    const isFormerGood = world.isFull() && (expiryMs(written) ?? Infinity) > world.serviceNowMs() - GRAIN_MS
    const isAllowed = ['', token?.accessToken ?? ''].includes(written) || isFormerGood
    check(isAllowed, 'another token is left in its file')
    const kept = world.file('run/state.json')
    check(kept === '' || kept.includes(token?.accessToken ?? ''), 'another token is kept')
    if (world.isFull()) return
    fullDisk = null
    checkAlert(shownOf(status), { ...none, noTokenAfterMs: NO_TOKEN_AFTER_MS }, broke)
    check(written === (token?.accessToken ?? ''), 'the token file has another token than the sockets')
    const alertMs = Date.parse(status.alert?.since ?? '') - world.now().wallMs
    // Of a resolved one the file goes a minute later.
    const isAlertWritten = world.file('run/alert.json').includes('"state":"raised"')
    // Raised by time alone it is written at the next tick.
    if (!(alertMs > -TICK_MS))
      check(isAlertWritten === (status.alert !== null), 'alert.json is not what status says')
    if (token !== null)
      check(world.file('run/state.json').includes(token.accessToken), 'the token is not kept')
  }

  function checkToken(token: TokenResult): void {
    const { generation, accessToken } = token
    const endsMs = expiryMs(accessToken) ?? Infinity
    handed.hand({ text: accessToken, generation, endsMs }, world.serviceNowMs())
    newest = token
    const isOld = expiryMs(token.accessToken) === null && world.now().bootMs - opaqueMs > MAX_AGE_MS
    check(token.stale || !isOld, 'an old token that is not stale')
    check(token.baseUrl.includes(baseUrl), 'a token of another service is served')
  }

  function shownOf({ state, alert, failure, token }: StatusResult): Shown {
    return {
      hasToken: token !== null,
      hasFailed: failure !== null,
      isRefused: state === 'refused',
      isRejected: failure?.reason === 'rejected',
      alert: alert?.reason ?? null,
    }
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
    tokenless = createTokenless(world.awakeMs())
    await start()
    await look({ isSettled: false })
    let isDisturbed = false
    for (const step of steps) {
      // Another pair in the files is tried at its own times.
      const isPlanned = !isDisturbed && runningName === nameOnDisk()
      if (step.do === 'wait' && isPlanned) await wait(step.ms)
      else await take(step)
      // A clock that went on alone, or files that were written: what was planned is acted on within a tick.
      isDisturbed =
        ['suspend', 'clock', 'rotate'].includes(step.do) ||
        (isDisturbed && !(step.do === 'wait' && step.ms >= TICK_MS))
      const isSettled = step.do === 'wait' && step.ms >= 2 * TICK_MS && !isDisturbed
      await look({ isSettled })
    }
    await heal()
    await world.stop()
    const processes = world.logged()
    const logged = processes.join('\n')
    const isSecretLogged = /(?:key|secret)-of-/.test(logged) || logged.includes(newest.accessToken)
    check(!isSecretLogged, 'a token or a secret is in the log')
    // A clock that was set makes the times of records mean nothing.
    const isClockSet = steps.some((step) => step.do === 'clock')
    for (const text of isClockSet ? [] : processes)
      for (const sentence of brokenByRecords(recordsOfLines(text))) broken.add(sentence)
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
