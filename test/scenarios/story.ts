// A random story about the whole daemon, and what holds at each of its moments, whatever happens. How the daemon
// decides is the exploration's; the rules about its requests and alerts are those of its log (test/rules).
import type { StatusResult, TokenResult } from '../../src/protocol.ts'
import { brokenByRecords, recordsOfLines } from '../rules/records.ts'
import { createRandom } from '../support/random.ts'
import { claimsOf, createWorld, durationMs, partsOf, type Settings, type Step } from './world.ts'

const GIVEN = { credentials: 'one', baseUrl: 'here', alerts: { noTokenAfter: '10m' } }
const TICK_MS = 15_000
/** The clocks of the story go in fractions, and those of the answers in milliseconds. */
const GRAIN_MS = 2
const ENDS = new Set(['stop', 'crash', 'reboot'])

/** Plays the story: after each end comes a start, and each report is of the current token. Returns what did not hold. */
export async function playStory(steps: readonly Step[], seed: number): Promise<readonly string[]> {
  const broken = new Set<string>()
  const world = await createWorld({ random: createRandom(seed) })
  let { baseUrl } = GIVEN
  /** The token that must be served until its end. */
  let kept = ''
  /** Every JWT that was served. */
  const served = new Set<string>()

  function check(claim: boolean, sentence: string): void {
    if (!claim) broken.add(sentence)
  }

  async function take(step: Step): Promise<void> {
    const [word, value] = partsOf(step)
    const before = baseUrl
    if (word === 'reload') baseUrl = (value as Settings).baseUrl ?? baseUrl
    // What a daemon that ends knew is kept where its disks take it; another service drops the token.
    if (ENDS.has(word) || baseUrl !== before) kept = ''
    await world.play(word === 'reports' ? { reports: kept } : step)
    if (ENDS.has(word)) await world.play('start')
  }

  async function look({ isSettled }: { isSettled: boolean }): Promise<StatusResult> {
    const status = await world.ask<StatusResult>('status.get')
    const shown = JSON.stringify(status) + world.file('run/alert.json')
    check(!/(?:key|secret)-of-/.test(shown), 'a key or a secret is shown')
    const answer = await world.ask<Partial<TokenResult>>('token.get')
    const { accessToken: token = '' } = answer
    const nowMs = world.serviceNowMs()
    check(token !== '' || !(expiryMs(kept) > nowMs + GRAIN_MS), 'a good token is not served')
    if (token !== '') {
      check(!(expiryMs(token) <= nowMs - GRAIN_MS), 'a token past its end is handed out')
      check(answer.baseUrl!.includes(baseUrl), 'a token of another service is served')
      check(answer.stale === false || status.state !== 'ready', 'ready with a stale token')
      if (token.includes('.')) served.add(token)
    }
    kept = token
    if (!isSettled || world.isFull()) return status
    check(world.file('run/token') === token, 'the token file has another token than the sockets')
    check(world.file('run/state.json').includes(token), 'the token is not kept')
    // Raised by time alone it is written at the next tick, and of a resolved one the file goes a minute later.
    const isNew = Date.parse(status.alert?.since ?? '') - world.nowMs() > -TICK_MS
    const isWritten = world.file('run/alert.json').includes('"state":"raised"')
    check(isNew || isWritten === (status.alert !== null), 'alert.json is not what status says')
    return status
  }

  /** The service is well, and an operator asks: there is a token, and all is over. */
  async function heal(): Promise<void> {
    const healing = [
      { harm: 'none' },
      { service: { jwt: 'healed' } },
      { wait: '60s' },
      'SIGUSR2',
      { wait: '90s' },
    ]
    for (const step of healing) await take(step)
    const { state, alert, daemon } = await look({ isSettled: true })
    check(state === 'ready' && alert === null, `${state} though the service is well`)
    check(daemon.configuration.state === 'current', 'changed files that are not taken over')
  }

  try {
    await world.play({ service: { status: 503 } })
    await world.play({ start: GIVEN })
    await look({ isSettled: false })
    let isDisturbed = false
    for (const step of steps) {
      await take(step)
      const [word, value] = partsOf(step)
      const isLong = word === 'wait' && durationMs(value as string) >= 2 * TICK_MS
      await look({ isSettled: isLong && !isDisturbed })
      // A clock that went on alone, or files that were written: what was planned is acted on within a tick.
      isDisturbed = ['suspend', 'set clock', 'write'].includes(word) || (isDisturbed && !isLong)
    }
    await heal()
    await world.play('stop')
    const processes = world.logged()
    const logged = processes.join('\n')
    check(!/(?:key|secret)-of-/.test(logged), 'a secret is in the log')
    check(![...served].some((token) => logged.includes(token)), 'a token is in the log')
    // A clock that was set makes the times of records mean nothing.
    const isTimed = !steps.some((step) => partsOf(step)[0] === 'set clock')
    const ofLog = isTimed ? processes.flatMap((text) => brokenByRecords(recordsOfLines(text))) : []
    return [...broken, ...ofLog]
  } finally {
    await world.end()
  }
}

/** The `exp` of a token, in ms since the epoch; NaN: it has none. */
function expiryMs(accessToken: string): number {
  return (claimsOf(accessToken).exp ?? NaN) * 1_000
}
