// A random story about the whole daemon, and what holds at each of its moments, whatever happens. How the daemon
// decides is the exploration's; the rules about its requests and alerts are those of its log (test/rules).
import type { StatusResult, TokenResult } from '../../src/protocol.ts'
import { brokenByRecords, recordsOfLines } from '../rules/records.ts'
import { createRandom } from '../support/random.ts'
import { createWorld, type Change, type Harm, type ServiceAnswer } from './world.ts'

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
const TICK_MS = 15_000
const CAP_MS = 60_000
/** The clocks of the story go in fractions, and those of the answers in milliseconds. */
const GRAIN_MS = 2

/** Plays the story. Returns what did not hold, in sentences. */
export async function playStory(steps: readonly Step[], seed: number): Promise<readonly string[]> {
  const broken = new Set<string>()
  const world = createWorld(GIVEN, createRandom(seed))
  let { baseUrl } = GIVEN
  let status: StatusResult | null = null
  /** The token that must be served until its end. */
  let kept = ''
  /** Every JWT that was served. */
  const served = new Set<string>()

  function check(claim: boolean, sentence: string): void {
    if (!claim) broken.add(sentence)
  }

  async function take(step: Step): Promise<void> {
    // What a daemon that ends knew is kept where its disks take it; another service drops the token.
    const hasChanged = step.do === 'reload' && (step.change.baseUrl ?? baseUrl) !== baseUrl
    if (hasChanged || ['restart', 'crash', 'reboot'].includes(step.do)) kept = ''
    switch (step.do) {
      case 'service':
        return world.service(step.answer)
      case 'wait':
        return world.wait(step.ms)
      case 'suspend':
        return world.suspend(step.ms)
      case 'clock':
        return world.setClock(step.ms)
      case 'need':
        return world.need(step.ms)
      case 'reject': {
        const fingerprint = status?.token?.fingerprint ?? '0'.repeat(16)
        return void (await world.ask('token.reject', { fingerprint }))
      }
      case 'operator':
        return world.signal()
      case 'reload':
        baseUrl = step.change.baseUrl ?? baseUrl
        return world.reload(step.change)
      case 'rotate':
        return world.rotate(step.credentials)
      case 'harm':
        return world.harm(step.what)
      case 'freeDisk':
        return world.freeDisk()
      case 'restart':
        await world.stop()
        return world.start()
      case 'crash':
        await world.crash(step.turns)
        return world.start()
      case 'reboot':
        await world.reboot()
        return world.start()
    }
  }

  async function look({ isSettled }: { isSettled: boolean }): Promise<void> {
    status = await world.ask<StatusResult>('status.get')
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
    if (!isSettled || world.isFull()) return
    check(world.file('run/token') === token, 'the token file has another token than the sockets')
    check(world.file('run/state.json').includes(token), 'the token is not kept')
    // Raised by time alone it is written at the next tick, and of a resolved one the file goes a minute later.
    const isNew = Date.parse(status.alert?.since ?? '') - world.now().wallMs > -TICK_MS
    const isWritten = world.file('run/alert.json').includes('"state":"raised"')
    check(isNew || isWritten === (status.alert !== null), 'alert.json is not what status says')
  }

  /** The service is well, and an operator asks: there is a token, and all is over. */
  async function heal(): Promise<void> {
    world.freeDisk()
    world.service({ jwt: 'healed', life: '1h' })
    await world.wait(CAP_MS)
    await take({ do: 'operator' })
    await world.wait(CAP_MS + 2 * TICK_MS)
    await look({ isSettled: true })
    check(status?.state === 'ready' && status.alert === null, `${status?.state} though the service is well`)
    check(status?.daemon.configuration.state === 'current', 'changed files that are not taken over')
  }

  try {
    await world.start()
    await look({ isSettled: false })
    let isDisturbed = false
    for (const step of steps) {
      await take(step)
      const isLong = step.do === 'wait' && step.ms >= 2 * TICK_MS
      await look({ isSettled: isLong && !isDisturbed })
      // A clock that went on alone, or files that were written: what was planned is acted on within a tick.
      isDisturbed = ['suspend', 'clock', 'rotate'].includes(step.do) || (isDisturbed && !isLong)
    }
    await heal()
    await world.stop()
    const processes = world.logged()
    const logged = processes.join('\n')
    check(!/(?:key|secret)-of-/.test(logged), 'a secret is in the log')
    check(![...served].some((token) => logged.includes(token)), 'a token is in the log')
    // A clock that was set makes the times of records mean nothing.
    const isTimed = !steps.some((step) => step.do === 'clock')
    const ofLog = isTimed ? processes.flatMap((text) => brokenByRecords(recordsOfLines(text))) : []
    return [...broken, ...ofLog]
  } finally {
    await world.end()
  }
}

/** The `exp` of a token, in ms since the epoch; NaN: it has none. */
function expiryMs(accessToken: string): number {
  const [, payload = ''] = accessToken.split('.')
  const { exp = NaN } = JSON.parse(Buffer.from(payload, 'base64url').toString() || '{}') as { exp?: number }
  return exp * 1_000
}
