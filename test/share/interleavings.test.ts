// Every order of the commands of two hosts: each order is played from the start on the room's own code. At the end
// both have the token that was asked for last, none has returned to an older one, and an operator was answered by
// a request that followed the act. `KYC_TOKEND_SWITCHES=9` explores more orders than CI does.
import { setImmediate as turn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { createFleet } from '../../src/share/fleet.ts'
import { createSeal } from '../../src/share/seal.ts'
import { createTelemetry } from '../../src/share/telemetry.ts'
import type { Cause } from '../../src/token/outcome.ts'
import { createMemoryServer } from '../support/memory-store.ts'
import { settingsOf } from '../support/redis.ts'

type Act = readonly [host: 0 | 1, cause: Cause]
type Fault = 'none' | 'flush' | 'lost reply' | 'lost command' | 'killed asker'

const SWITCHES = Number(process.env['KYC_TOKEND_SWITCHES'] ?? 3)
const LIFE_MS = 3_600_000
const seal = createSeal('account', 'kyc-tokend')
const settings = {
  ...settingsOf({ address: { path: '/x' } }),
  timeoutMs: 1_000,
  asks: true,
  whenAlone: 'fetch',
  key: null,
} as const
const log = (): void => undefined

/** What the store does with the command of the step at which the fault happens. */
const MODES: Partial<Record<Fault, 'lost' | 'late'>> = { 'lost command': 'lost', 'lost reply': 'late' }

interface Choice {
  readonly options: number
  readonly chosen: number
}

/** Plays the acts with these choices, then with the first of each. `faultAt`: the step at which the fault happens. */
async function play(
  acts: readonly Act[],
  choices: readonly number[],
  { fault, faultAt }: { fault: Fault; faultAt: number },
) {
  let nowMs = 1_000_000
  let steps = 0
  let running = 0
  let switches = 0
  const made: Choice[] = []
  const dead = new Set<number>()
  const waiting = new Map<number, { isSleep: boolean; since: number; go: () => void }[]>()
  const server = createMemoryServer(() => nowMs + 5_000_000)
  const step = (host: number, isSleep = false): Promise<void> => {
    const { promise, resolve } = Promise.withResolvers<void>()
    waiting.set(host, [...(waiting.get(host) ?? []), { isSleep, since: steps, go: resolve }])
    return promise
  }
  const requests: { sent: number; answered: number }[] = []
  const clock = {
    now: () => ({ bootMs: nowMs, wallMs: nowMs }),
    awakeMs: () => nowMs,
    schedule: () => () => undefined,
  }
  const telemetry = createTelemetry({ settings, log, clock })
  /** The step of the first command of each host's act: an operator is answered by what is asked for from then on. */
  const begun: (number | null)[] = [null, null]
  server.step = (host) => step(host).then(() => void (begun[host] ??= steps))
  const hosts = [0, 1].map((index) => {
    const store = Promise.resolve(server.connect(index))
    const sleep = (): Promise<void> => step(index, true)
    const around = { seal, store, settings, random: () => 0.5, pairId: '', held: () => null, telemetry }
    return createFleet({ ...around, clock: { ...clock, sleep } })
  })

  const history: number[][] = [[], []]
  const problems: string[] = []
  async function run(index: number): Promise<void> {
    for (const [, cause] of acts.filter(([host]) => host === index)) {
      begun[index] = null
      const account = {
        share: settings,
        pairId: '',
        text: '',
        requestTimeoutMs: 15_000,
        maxAgeMs: LIFE_MS,
        hasOwnProof: false,
        async fetchToken(_signal: AbortSignal, { onSent }: { onSent?: () => void }) {
          await step(index)
          onSent?.()
          const request = { sent: steps, answered: Infinity }
          const number = requests.push(request)
          await step(index)
          request.answered = steps
          return { kind: 'ok', accessToken: `t${number}`, answerLifeMs: LIFE_MS } as const
        },
      }
      const attempt = { cause, beforeRequest: () => Promise.resolve() }
      const outcome = await hosts[index]!.attempt(account, new AbortController().signal, attempt)
      const isOperator = cause === 'operator'
      const number = outcome.kind === 'ok' ? Number(outcome.accessToken.slice(1)) : 0
      if (isOperator && (number === 0 || requests[number - 1]!.sent < begun[index]!))
        problems.push('an operator is not answered')
      see()
    }
  }
  function see(): void {
    for (const [index, { answers }] of hosts.entries()) {
      const answer = answers.latest()
      const number = answer?.kind === 'ok' ? Number(answer.accessToken.slice(1)) : 0
      const before = history[index]!.at(-1) ?? 0
      if (number !== before && number > 0) history[index]!.push(number)
      if (number < before && requests[number - 1]!.answered < requests[before - 1]!.sent)
        problems.push('a return to an older token')
    }
  }
  /** Lets one host go on at a time, by the choices, until the work is over. */
  async function schedule(work: Promise<unknown>): Promise<void> {
    let isOver = false
    const over = work.then(() => (isOver = true))
    for (;;) {
      await turn()
      see()
      if (isOver) break
      const ready = [...waiting].filter(([host, [first]]) => first !== undefined && !dead.has(host))
      // A host that waits looks again only after another one has done something.
      const able = ready.filter(([, [first]]) => !first!.isSleep || first!.since < steps)
      const awake = able.length > 0 ? able : ready
      if (awake.length === 0) break
      const present = awake.findIndex(([host]) => host === running)
      const mayChoose = awake.length > 1 && (present === -1 || switches < SWITCHES)
      const chosen = mayChoose ? (choices[made.length] ?? 0) : Math.max(0, present)
      if (mayChoose) made.push({ options: awake.length, chosen })
      const [host, [first, ...others]] = awake[chosen]!
      if (present !== -1 && host !== running) switches += 1
      running = host
      waiting.set(host, others)
      steps += 1
      nowMs += first!.isSleep ? 100 : 2
      const isFaulty = steps === faultAt
      server.mode = (isFaulty && MODES[fault]) || 'well'
      if (isFaulty && fault === 'flush') server.flush()
      if (isFaulty && fault === 'killed asker') {
        dead.add(host)
        nowMs += 17_000
      } else first!.go()
    }
    if (dead.size === 0) await over
  }

  await schedule(Promise.all([run(0), run(1)]))
  const alive = [0, 1].filter((index) => !dead.has(index))
  const look = async (): Promise<void> => {
    for (let turns = 0; turns < 3; turns += 1)
      for (const index of alive) await hosts[index]!.answers.read().catch(telemetry.failed)
  }
  await schedule(look())
  const tokenOf = (index: number): unknown =>
    ({ accessToken: null, ...hosts[index]!.answers.latest() }).accessToken
  const tokens = new Set(alive.map(tokenOf))
  if (tokens.size > 1) problems.push('two tokens at the end')
  const answered = requests.filter((request) => request.answered < Infinity)
  const last = requests.indexOf(answered.toSorted((one, other) => one.sent - other.sent).at(-1)!) + 1
  if (dead.size === 0 && !tokens.has(`t${last}`)) problems.push('not the latest token at the end')
  return { made, requests: requests.length, problems }
}

/** Plays every order. */
async function explore(
  acts: readonly Act[],
  fault: Fault,
  faultAt: number,
): Promise<{ orders: number; most: number }> {
  let [orders, most] = [0, 0]
  let choices: number[] | null = []
  while (choices !== null) {
    const { made, requests, problems } = await play(acts, choices, { fault, faultAt })
    orders += 1
    most = Math.max(most, requests)
    expect(
      problems,
      `${acts.join(' ')} ${fault} ${faultAt}: ${made.map(({ chosen }) => chosen).join('')}`,
    ).toEqual([])
    const last = made.findLastIndex(({ options, chosen }) => chosen + 1 < options)
    choices =
      last === -1 ? null : [...made.slice(0, last).map(({ chosen }) => chosen), made[last]!.chosen + 1]
  }
  return { orders, most }
}

/** Host and cause of each act, and the most requests. */
const STORIES = [
  ['0 refresh, 1 refresh', 1],
  ['0 operator, 1 operator', 2],
  ['0 refresh, 1 refresh, 1 operator', 2],
  ['0 operator, 1 refresh, 1 refresh', 3],
  ['0 operator, 1 operator, 1 refresh', 3],
] as const
test.each(STORIES)('%s: at most %d requests', { timeout: 600_000 }, async (story, requests) => {
  const acts = story.split(', ').map((act) => [Number(act[0]), act.slice(2)] as unknown as Act)
  const { orders, most } = await explore(acts, 'none', 0)
  process.stdout.write(`${story}: ${orders} orders, at most ${most} requests\n`)
  expect(most).toBeLessThanOrEqual(requests)
})

test.each<Fault>(['flush', 'lost reply', 'lost command', 'killed asker'])(
  'a refresh and an operator, with a fault at each step: %s',
  { timeout: 600_000 },
  async (fault) => {
    let [all, most] = [0, 0]
    for (let faultAt = 1; faultAt <= 14; faultAt += 1) {
      const acts = [
        [0, 'refresh'],
        [1, 'operator'],
      ] as const
      const explored = await explore(acts, fault, faultAt)
      all += explored.orders
      most = Math.max(most, explored.most)
    }
    process.stdout.write(`${fault} at each of 14 steps: ${all} orders, at most ${most} requests\n`)
    expect(most).toBeLessThanOrEqual(3)
    expect(all).toBeGreaterThan(100)
  },
)
