// Every order of the commands of two hosts: each order is played from the start on the room's own code. At the end
// both have the token that was asked for last, none has returned to an older one, and an operator was answered by
// a request that followed the act. `KYC_TOKEND_SWITCHES=9` explores more orders than CI does.
import { setImmediate as turn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { createFleet, type SharedPair } from '../../src/share/fleet.ts'
import { createSeal } from '../../src/share/seal.ts'
import { createTelemetry } from '../../src/share/telemetry.ts'
import type { Cause } from '../../src/token/outcome.ts'
import { createMemoryServer } from '../support/memory-store.ts'
import { settingsOf } from '../support/redis.ts'

const SWITCHES = Number(process.env['KYC_TOKEND_SWITCHES'] ?? 3)
const LIFE_MS = 3_600_000
const seal = createSeal('account', 'kyc-tokend')
const settings = settingsOf({ address: { path: '/memory' } }, { timeoutMs: 1_000 })
const { signal } = new AbortController()

interface Story {
  readonly acts: readonly { readonly host: number; readonly cause: Cause }[]
  readonly fault: 'no fault' | 'a flush' | 'a lost reply' | 'a lost command' | 'a killed asker'
  /** The step at which the fault happens. */
  readonly faultAt: number
}

/** Lets one host go on at a time: by these choices, then the first that may. `isKilled`: the host ends at this step. */
function createSchedule(choices: readonly number[], isKilled: (step: number) => boolean) {
  const pauses = new Map<number, { isSleep: boolean; since: number; go: () => void }>()
  const made: { readonly options: number; readonly chosen: number }[] = []
  const alive = new Set([0, 1])
  let [nowMs, steps, running, switches] = [1_000_000, 0, 0, 0]

  /** One host goes on. False: none can. */
  function step(): boolean {
    // A host that sleeps looks again only after another one has done something.
    const able = [...pauses].filter(([, { isSleep, since }]) => !isSleep || since < steps)
    const ready = able.length > 0 ? able : [...pauses]
    if (ready.length === 0) return false
    const present = ready.findIndex(([host]) => host === running)
    const mayChoose = ready.length > 1 && (present === -1 || switches < SWITCHES)
    const chosen = mayChoose ? (choices[made.length] ?? 0) : Math.max(0, present)
    if (mayChoose) made.push({ options: ready.length, chosen })
    const [host, { isSleep, go }] = ready[chosen]!
    if (present !== -1 && host !== running) switches += 1
    running = host
    steps += 1
    nowMs += isSleep ? 100 : 2
    pauses.delete(host)
    if (!isKilled(steps)) go()
    else if (alive.delete(host)) nowMs += 17_000
    return true
  }
  return {
    made,
    alive,
    nowMs: () => nowMs,
    steps: () => steps,
    /** The host goes on when it is chosen. */
    pause: (host: number, isSleep = false) =>
      new Promise<void>((go) => void pauses.set(host, { isSleep, since: steps, go })),
    /** Goes on until the work is over, or waits for a host that was killed. */
    run: async (work: Promise<unknown>, afterStep: () => void): Promise<void> => {
      let isOver = false
      const over = work.finally(() => (isOver = true))
      for (;;) {
        await turn()
        afterStep()
        if (isOver || !step()) break
      }
      if (alive.size === 2) await over
    },
  }
}

/** Plays the story in the order of these choices. */
async function play({ acts, fault, faultAt }: Story, choices: readonly number[]) {
  const problems: string[] = []
  /** The steps at which each request was sent and answered; the first brings token 1. */
  const requests: { readonly sent: number; answered: number }[] = []
  /** The step of the first command of each host's act: an operator is answered by what is asked for from then on. */
  const begun: (number | null)[] = [null, null]
  const { made, alive, nowMs, steps, pause, run } = createSchedule(choices, (step) => {
    const present = step === faultAt ? fault : 'no fault'
    server.mode = present === 'a lost command' ? 'lost' : present === 'a lost reply' ? 'late' : 'well'
    if (present === 'a flush') server.flush()
    return present === 'a killed asker'
  })
  const server = createMemoryServer(() => nowMs() + 5_000_000)
  server.step = (host) => pause(host).then(() => void (begun[host] ??= steps()))
  const clock = {
    now: () => ({ bootMs: nowMs(), wallMs: nowMs() }),
    awakeMs: nowMs,
    schedule: () => () => undefined,
  }
  const telemetry = createTelemetry({ settings, log: () => undefined, clock })
  const around = { seal, settings, random: () => 0.5, pairId: '', held: () => null, telemetry }
  const hosts = [0, 1].map((host) => {
    const sleep = (): Promise<void> => pause(host, true)
    const store = Promise.resolve(server.connect(host))
    return createFleet({ ...around, store, clock: { ...clock, sleep } })
  })

  async function act(host: number, cause: Cause): Promise<void> {
    const fetchToken: SharedPair['fetchToken'] = async (_signal, { onSent }) => {
      await pause(host)
      onSent?.()
      const request = { sent: steps(), answered: Infinity }
      const number = requests.push(request)
      await pause(host)
      request.answered = steps()
      return { kind: 'ok', accessToken: `${number}`, answerLifeMs: LIFE_MS }
    }
    const limits = { requestTimeoutMs: 15_000, maxAgeMs: LIFE_MS }
    const pair = { share: settings, pairId: '', text: '', hasOwnProof: false, fetchToken, ...limits }
    begun[host] = null
    const attempt = { cause, beforeRequest: () => Promise.resolve() }
    const outcome = await hosts[host]!.attempt(pair, signal, attempt)
    const sent = outcome.kind === 'ok' ? requests[Number(outcome.accessToken) - 1]!.sent : -1
    if (cause === 'operator' && sent < begun[host]!) problems.push('an operator is not answered')
  }
  const tokenOf = (host: number): number => {
    const answer = hosts[host]!.answers.latest()
    return answer?.kind === 'ok' ? Number(answer.accessToken) : 0
  }
  const before = [0, 0]
  function see(): void {
    for (const host of [0, 1]) {
      const [number, former] = [tokenOf(host), before[host]!]
      before[host] = number
      if (number < former && requests[number - 1]!.answered < requests[former - 1]!.sent)
        problems.push('a return to an older token')
    }
  }
  const inTurn = async (host: number): Promise<void> => {
    for (const { cause } of acts.filter((one) => one.host === host)) await act(host, cause).then(see)
  }
  await run(Promise.all([inTurn(0), inTurn(1)]), see)
  const look = async (): Promise<void> => {
    for (const host of [...alive, ...alive, ...alive])
      await hosts[host]!.answers.read().catch(telemetry.failed)
  }
  await run(look(), see)
  const tokens = new Set([...alive].map(tokenOf))
  if (tokens.size > 1) problems.push('two tokens at the end')
  const last = requests.findLastIndex(({ answered }) => answered < Infinity) + 1
  if (alive.size === 2 && !tokens.has(last)) problems.push('not the latest token at the end')
  if (fault === 'no fault' && server.text('lease') !== '') problems.push('a lease without an asker')
  return { made, requests: requests.length, problems }
}

/** Plays every order of the story. Returns how many there are, and the most requests of one. */
async function explore(story: Story): Promise<{ orders: number; most: number }> {
  let [orders, most] = [0, 0]
  for (let choices: number[] | null = []; choices !== null;) {
    const { made, requests, problems } = await play(story, choices)
    orders += 1
    most = Math.max(most, requests)
    const chosen = made.map((choice) => choice.chosen)
    expect(problems, `${JSON.stringify(story)}: ${chosen.join('')}`).toEqual([])
    const last = made.findLastIndex((choice) => choice.chosen + 1 < choice.options)
    choices = last === -1 ? null : [...chosen.slice(0, last), chosen[last]! + 1]
  }
  return { orders, most }
}

/** Host and cause of each act, the fault that happens at one step, and the most requests. */
const STORIES = [
  ['0 refresh, 1 refresh', 'no fault', 1],
  ['0 operator, 1 operator', 'no fault', 1],
  ['0 refresh, 1 refresh, 1 operator', 'no fault', 2],
  ['0 operator, 1 refresh, 1 refresh', 'no fault', 3],
  ['0 operator, 1 operator, 1 refresh', 'no fault', 2],
  ['0 refresh, 1 operator', 'a flush', 2],
  ['0 refresh, 1 operator', 'a lost reply', 2],
  ['0 refresh, 1 operator', 'a lost command', 2],
  ['0 refresh, 1 operator', 'a killed asker', 2],
] as const
test.each(STORIES)(
  '%s, with %s: at most %d requests',
  { timeout: 600_000 },
  async (told, fault, requests) => {
    const acts = told.split(', ').map((act) => ({ host: Number(act[0]), cause: act.slice(2) as Cause }))
    let [orders, most] = [0, 0]
    for (let faultAt = 1; faultAt <= (fault === 'no fault' ? 1 : 14); faultAt += 1) {
      const explored = await explore({ acts, fault, faultAt })
      orders += explored.orders
      most = Math.max(most, explored.most)
    }
    process.stdout.write(`${told}, with ${fault}: ${orders} orders, at most ${most} requests\n`)
    expect(most).toBeLessThanOrEqual(requests)
    expect(orders).toBeGreaterThan(50)
  },
)
