// All histories of one host, breadth first, so that the first one that breaks a rule is a shortest one: attempts and
// answers, files, acts, clients, clocks, kills and starts, over the real transitions, schedule and saved states.
import { afterBoot, type Saved } from '../../src/storage/state-store.ts'
import type { FetchOutcome } from '../../src/token/outcome.ts'
import { next, refusalOf, usableToken, type Plan } from '../../src/token/selectors.ts'
import { initialState, type TokenState } from '../../src/token/state.ts'
import * as transitions from '../../src/token/transitions.ts'
import { jwtOf } from '../support/jwt.ts'

/** What is explored: replaced in part to see that a mistake is found. */
export const machine = { ...transitions, next, refusalOf, usableToken, afterBoot }
export type Machine = typeof machine

/** The answers and the acts that a history is made of. */
export const WORLDS = {
  pairs: [
    'long refused failed 429',
    'files operator crash crash+files reboot orderly orderly+files service service+files',
  ],
  life: ['short long assumed same failed rejected', 'operator report need-2 need-8 jump pause crash reboot'],
  assertion: ['long refused failed', 'changed bad good operator report crash reboot orderly files'],
  postponed: ['long refused failed postponed', 'operator report crash files orderly'],
} as const satisfies Record<string, readonly [string, string]>
export const ALL = [0, 1].map((index) =>
  [...new Set(Object.values(WORLDS).flatMap((world) => world[index as 0 | 1].split(' ')))].join(' '),
) as [string, string]

/** 30 s: the grain of the schedule in this world. Waits are the shortest that chance draws. */
const U = 30_000
const EPOCH_MS = 1_800_000_000_000
const POLICY = { initialDelayMs: 2 * U, maxDelayMs: 20 * U, maxAgeMs: 6 * U }
const USE = { header: 'Authorization', prefix: 'Bearer ' }
const LIVES: Readonly<Record<string, readonly [number, boolean]>> = {
  short: [3 * U, false],
  long: [12 * U, false],
  assumed: [6 * U, true],
}
const FLOORS: Readonly<Record<string, number>> = { 429: 4 * U, rejected: 10 * U }
/** Waits after so many failures in a row: without a token, with one. */
const SOON_MS = [0, U, U, U, U, U]
const LATE_MS = [0, U, 2 * U, 4 * U, 8 * U, 10 * U]
const PACES_MS = [U, 2 * U, 4 * U]

/** What an observer knows of a pair, who sees files, acts, requests, answers and what clients get. */
const UNKNOWN = {
  known: false,
  /** The assertion's content at its refusal. */
  refused: null as number | null,
  /** An orderly start, or another content, may have it asked. */
  may: false,
  floorAt: 0,
  postponedAt: 0,
  asks: 0,
  soonAt: 0,
  lateAt: 0,
}
type Pair = typeof UNKNOWN
interface Seen {
  text: string
  pair: string
  endAt: number
  untilAt: number
  /** Its `exp` by either clock. */
  oursAt: number
  theirsAt: number
  refreshAt: number
  takenAt: number
  calmAt: number
  given: number
  byClients: boolean
  reported: boolean
  jumped: boolean
}
const OBSERVER = {
  files: 'A',
  running: 'A',
  service: 'X',
  pairs: { A: { ...UNKNOWN, known: true }, B: UNKNOWN } as Record<string, Pair>,
  token: null as Seen | null,
  flight: null as { pair: string; operator: boolean; joined: boolean; content: number } | null,
  wish: null as 'files' | 'running' | null,
  want: false,
  lastAt: -9 * U,
  pace: 0,
  content: 0,
  good: true,
  liftAt: 0,
  // By how much the wall clock and the service's clock have gone ahead; `unseen` of the latter by no answer yet.
  wall: 0,
  theirs: 0,
  unseen: 0,
  clocks: 1,
}
type Observer = typeof OBSERVER
interface Node {
  readonly s: TokenState
  readonly m: Observer
  readonly now: number
  /** How it was reached. */
  readonly h?: History
}
type Event = readonly [act: string, with_?: Plan | string | number]

const serviceOf = (id: string) => ({ id, baseUrl: `https://${id}`, use: USE, refusedBy: [401] })
const other = (list: string, one: string): string => list.split('').find((each) => each !== one)!
const isGood = (t: Seen | null, now: number): t is Seen =>
  t !== null && now < t.untilAt && !(t.oursAt <= now && t.theirsAt <= now)
const triedAt = (asks: number, now: number) => ({
  asks,
  soonAt: now + SOON_MS[asks]!,
  lateAt: now + LATE_MS[asks]!,
})

function must(claim: boolean, rule: string): void {
  if (!claim) throw new Error(rule)
}

let serial = 0

/** One step of a history: the machine and the observer go on, and the rules are checked. */
function createStep(play: Machine, { s: before, m: seen, now: began }: Node) {
  const m: Observer = {
    ...seen,
    token: seen.token && { ...seen.token },
    pairs: { A: { ...seen.pairs['A']! }, B: { ...seen.pairs['B']! } },
  }
  let [s, now] = [before, began]
  const instant = () => ({ bootMs: now, wallMs: EPOCH_MS + now + m.wall })
  const step = () => ({ now: instant(), drawn: 0 })
  const filesOf = (pair: string) => ({ service: serviceOf(m.service), policy: POLICY, pair })

  /** The daemon reads its files, at a start or while it runs. */
  function read(act: string, more: string | undefined): void {
    const isStart = act === 'crash' || act === 'reboot' || act === 'orderly'
    const pair = act === 'files' || more === 'files' ? other('AB', m.files) : m.files
    const service = act === 'service' ? other('XY', m.service) : m.service
    if (service !== m.service)
      Object.assign(m, {
        service,
        running: pair,
        token: null,
        want: false,
        pairs: { A: { ...UNKNOWN }, B: { ...UNKNOWN } },
        flight: null,
        ...(m.flight?.operator && { wish: 'files' }),
      })
    if (act === 'reboot') Object.assign(m, { token: null, want: false, unseen: m.theirs })
    if (isStart)
      for (const [id, p] of Object.entries(m.pairs))
        Object.assign(p, {
          known: false,
          may: p.may || (act === 'orderly' && id === pair && p.refused !== null),
        })
    m.files = pair
    if (isStart) Object.assign(m, { running: pair, flight: null, wish: null })
    m.pairs[pair]!.known = true
    if (!isStart) {
      s = play.afterFiles(s, filesOf(pair), step())
      const late = act === 'service' ? play.afterAnswer(s, outcomeOf('long'), step()) : null
      must(late === null || late.outcome === null, 'an answer of the former service is given up')
      readAssertion()
      return
    }
    const state = act === 'reboot' ? play.withoutToken(s, instant()) : s
    const saved = { at: instant(), isOrderly: act === 'orderly', state }
    const found = JSON.parse(JSON.stringify(saved)) as Saved
    const former = act === 'reboot' ? play.afterBoot(found, instant()) : found
    s = play.afterStart(former.state, { ...filesOf(pair), isOrderly: former.isOrderly }, step())
    readAssertion()
  }

  /** The keeper reads the file at each wake: another content lifts a refusal, at most once in 5 min. */
  function readAssertion(): void {
    if (!m.good) return
    for (const pair of new Set([m.files, m.running])) {
      const p = m.pairs[pair]!
      const isLifted = p.refused !== null && p.refused !== m.content && !p.may && now >= m.liftAt
      if (isLifted) Object.assign(p, { may: true })
      if (isLifted) m.liftAt = now + 10 * U
      s = play.afterAssertion(s, pair, String(m.content), instant())
    }
  }

  function client(act: string, more: string | undefined): void {
    const t = m.token
    const minMs = Number(more) * U
    const counts = isGood(t, now) && m.pairs[m.running]!.refused === null
    if (counts && act === 'report') {
      if (!t.reported) m.pace = now >= t.calmAt ? 0 : Math.min(m.pace + (t.byClients ? 1 : 0), 2)
      if (!t.reported) m.pairs[m.running]!.postponedAt = 0
      t.reported = m.want = true
    }
    if (counts && act === 'need' && minMs > t.endAt - now && minMs <= t.given - U) m.want = true
    if (act === 'need') s = play.afterNeed(s, minMs, instant())
    else s = play.afterReport(s, usableToken(s, instant())?.fingerprint ?? '', instant()).state
  }

  /** A request is about to go out: is it one that may? */
  function checkRequest({ pair }: Plan): void {
    const p = m.pairs[pair]!
    const { operator } = m.flight!
    const free = operator || p.may
    const good = isGood(m.token, now)
    const isCandidate = pair !== m.running
    const isEarly = good && m.token!.pair === pair && now < m.token!.refreshAt && !m.token!.jumped
    const planned = free || p.asks > 0 || isCandidate || !isEarly
    must(p.known, 'a secret that is in no file since the start or the change of service is not sent')
    must(p.refused === null || free, 'a refused pair is asked only after an act that the contract names')
    must(
      operator || now >= p.floorAt,
      'Retry-After and the pace of `rejected` are passed by an operator alone',
    )
    must(operator || now >= p.postponedAt, 'a postponed attempt is woken by a report or an operator alone')
    must(
      free || p.asks === 0 || now >= (good ? Math.min(p.lateAt, usableUntil()) : p.soonAt),
      'a request that was counted is not sent again, whatever stopped',
    )
    must(planned || m.want, 'each request has a cause')
    must(planned || now >= m.lastAt + PACES_MS[m.pace]!, 'clients cause one request per 30, 60, 120 s')
    if (m.token?.pair === pair) m.token.jumped = false
    if (!planned) m.lastAt = now
    Object.assign(p, triedAt(Math.min(p.asks + 1, 5), now), { may: false })
  }
  const usableUntil = (): number => (m.token === null ? -Infinity : m.token.untilAt)

  /** The keeper makes the attempt that is due. */
  function ask(plan: Plan): void {
    must(m.flight === null, 'one request at a time')
    const operator = m.wish !== null && plan.pair === (m.wish === 'files' ? m.files : m.running)
    m.flight = { pair: plan.pair, operator, joined: false, content: m.content }
    if (operator) m.wish = null
    s = play.afterBegin(s, plan)
    if (!m.good) return answer('assertion')
    checkRequest(plan)
    s = play.afterRequest(s, step(), String(m.content))
  }

  function outcomeOf(what: string): FetchOutcome {
    const serverDateMs = EPOCH_MS + now + m.theirs
    if (what === 'same') return { kind: 'ok', accessToken: m.token!.text, serverDateMs }
    const [life, isAssumed] = LIVES[what] ?? []
    if (life !== undefined) {
      serial += 1
      const accessToken = isAssumed ? `opaque${serial}` : jwtOf({ exp: (serverDateMs + life) / 1000 }, serial)
      return { kind: 'ok', accessToken, serverDateMs }
    }
    if (what === 'refused')
      return { kind: 'permanent', reason: 'account-inactive', detail: '', status: 500, serverDateMs }
    if (what === 'postponed') return { kind: 'postponed', retryAfterMs: 3 * U }
    if (what === 'assertion') return { kind: 'transient', reason: 'assertion', detail: '' }
    const failure = { kind: 'transient', detail: '', serverDateMs } as const
    if (what === '429') return { ...failure, reason: 'rate-limited', retryAfterMs: 4 * U }
    return { ...failure, reason: what === 'failed' ? 'server-error' : 'rejected' }
  }

  /** The attempt ends. */
  function answer(what: string): void {
    const f = m.flight!
    const p = m.pairs[f.pair]!
    const isAsked = what !== 'postponed' && what !== 'assertion'
    const outcome = outcomeOf(what)
    if (isAsked) {
      if (m.token) m.token.theirsAt -= m.unseen
      m.unseen = 0
    }
    const t = m.token
    const again = t && {
      ...t,
      endAt: Math.min(t.endAt, t.theirsAt),
      untilAt: Math.min(t.untilAt, t.theirsAt),
    }
    const isToken =
      LIVES[what] !== undefined || (what === 'same' && (again!.theirsAt === Infinity || again!.endAt > now))
    const taken = isToken && (f.pair === m.files || f.pair === m.running)
    const useless = (isToken && !taken) || (what === 'postponed' && f.joined)
    if (m.wish === null) {
      if (useless) m.wish = f.operator ? 'files' : null
      else if (!taken && f.operator && f.pair !== m.running) m.wish = 'running'
    }
    s = play.afterAnswer(s, outcome, step()).state
    m.flight = null
    if (taken) take(f.pair, what, again)
    if (taken) m.want = false
    if (!isAsked) p.postponedAt = now + (what === 'postponed' ? 3 * U : U / 2)
    else if (!isToken) p.postponedAt = 0
    if (taken) Object.assign(p, UNKNOWN, { known: p.known })
    else if (isToken) return
    else if (what === 'refused') Object.assign(p, { refused: f.content })
    else if (isAsked)
      Object.assign(p, triedAt(Math.max(1, p.asks), now), {
        refused: null,
        floorAt: Math.max(p.floorAt, now + (FLOORS[what] ?? 0)),
      })
  }

  function take(pair: string, what: string, again: Seen | null): void {
    const refreshAt = s.token!.refreshAtMs
    const isAnew = what !== 'same' || again!.theirsAt === Infinity
    const [life, assumed] = LIVES[what] ?? LIVES['assumed']!
    const text = s.token!.accessToken
    const endAt = now + life
    // A new answer shows both clocks as they are; ours may have been set wrong.
    const ends = { oursAt: endAt + m.theirs - m.wall, theirsAt: endAt, untilAt: endAt }
    const assumedEnds = { oursAt: Infinity, theirsAt: Infinity, untilAt: endAt + life }
    const t = isAnew ? { text, endAt, ...(assumed ? assumedEnds : ends) } : again!
    must(refreshAt > now && refreshAt <= t.endAt, 'a refresh is planned before the end of the token')
    const againMs = Math.max(5_000, (t.endAt - now) / 2)
    must(
      isAnew || refreshAt <= now + againMs,
      'a token that was given again is asked for at half of its life',
    )
    m.token = {
      ...t,
      pair,
      refreshAt,
      takenAt: now,
      calmAt: now + (refreshAt - now) / 2,
      given: t.endAt - now,
      byClients: m.want,
      reported: false,
      jumped: false,
    }
    m.running = pair
  }

  return {
    play([name, what]: Event): Node {
      const [act = '', more] = name.split(/[+-]/)
      if (['crash', 'reboot', 'orderly', 'files', 'service'].includes(act)) read(act, more)
      else if (act === 'wait') {
        now = what as number
        readAssertion()
      } else if (act === 'operator') {
        const f = m.flight
        if (f === null) m.wish = 'files'
        else {
          m.flight = { ...f, operator: true, joined: f.joined || !f.operator }
          m.wish = f.pair === m.files ? null : 'files'
        }
        s = play.afterOperator(s)
      } else if (act === 'report' || act === 'need') client(act, more)
      else if (act === 'jump' || act === 'pause') {
        m.wall += 4 * U
        m.clocks -= 1
        // A person sets the wall clock; or the machine stood still, and the service's clock went on, too.
        if (act === 'pause') Object.assign(m, { theirs: m.theirs + 4 * U, unseen: m.unseen + 4 * U })
        // Its refresh is due now.
        const t = m.token
        if (t) t.calmAt = Math.min(t.calmAt, (t.takenAt + now) / 2)
        if (t) Object.assign(t, { oursAt: t.oursAt - 4 * U, jumped: true })
      } else if (act === 'changed' || act === 'bad' || act === 'good') {
        m.good = act !== 'bad'
        if (act === 'changed') m.content = 1 - m.content
        readAssertion()
      } else if (act === 'ask') ask(what as Plan)
      else answer(what as string)
      s = play.afterTick(s, instant(), 0)
      check()
      return { s, m, now }
    },
  }

  /** The rules that hold at every moment. */
  function check(): void {
    const got = play.usableToken(s, instant())
    const n = play.next(s, instant())
    const [p, q] = [m.pairs[m.running]!, m.pairs[m.files]!]
    const good = isGood(m.token, now)
    must(got === null || good, 'no token is served past its known end, or of another service')
    must(
      !good || got?.accessToken === m.token!.text,
      'a good token is taken away by its end, a boot or another service alone',
    )
    must(s.running === m.running, 'a pair comes into use by a token, a start or another service')
    must(
      (play.refusalOf(s) !== null) === (p.refused !== null),
      'clients see the refusal of the running pair alone',
    )
    if (m.flight) return
    const isIdle = good && m.token!.pair === m.files && m.running === m.files && !m.token!.jumped
    const wished = m.wish === 'files' ? m.files : m.running
    must(m.wish === null || (n.atMs <= now && n.pair === wished), 'an operator is never held back')
    const heldUntil = (one: Pair): number => Math.max(now, one.floorAt, one.postponedAt)
    const mostMs = good ? 10 * U : U
    must(
      p.refused !== null || (good && p.asks === 0) || n.atMs <= Math.max(now + mostMs, heldUntil(p)),
      'the next attempt is at most 1 min away, 5 min with a token',
    )
    must(
      !good ||
        n.atMs <= Math.max(now, m.token!.endAt, heldUntil(p), heldUntil(q)) ||
        p.refused !== null ||
        p.asks > 0,
      'an attempt is due before the end of the token',
    )
    must(
      q.refused !== null || !m.good || q.asks > 0 || isIdle || n.atMs <= heldUntil(q),
      'a new pair, and a jump of the clock, ask at once',
    )
  }
}

/** Facts that change nothing of what can follow. */
const OMITTED = new Set(
  (
    'accessToken text fingerprint generation receivedAtMs newestSince failure tokenless notes requests lastRequestAt ' +
    'lastSuccessAt sentAtMs service policy isUnchanged since drawn cause baseUrl expMs clocks wall theirs'
  ).split(' '),
)
/** Instants that are long past are equal. */
const OLDEST_MS: Readonly<Record<string, number>> = {
  requestedAtMs: -4 * U,
  lastAt: -4 * U,
  expiresAtMs: -7 * U,
}

/** The same situation at another time, or with the names of pairs or services exchanged, has the same key. */
function keyOf({ s, m, now }: Node): string {
  const order = [s.newest, other('AB', s.newest)]
  const write = (value: unknown, name: string): string => {
    if (OMITTED.has(name)) return ''
    if (typeof value === 'number') {
      if (name === 'attempts') return String(Math.min(value, 5))
      if (!/(?:At|Ms)$/.test(name) || name === 'lifeMs') return String(value / 1000)
      return String(Math.max(value - now, OLDEST_MS[name] ?? 0) / 1000)
    }
    if (typeof value === 'string') {
      if (value === order[0]) return 'a'
      if (value === order[1]) return 'b'
      return value === m.service ? 'x' : value === 'X' || value === 'Y' ? 'y' : value
    }
    if (typeof value === 'boolean') return value ? '+' : '-'
    if (value === null || value === undefined) return '_'
    const facts = value as Record<string, unknown>
    const names = name === 'pairs' ? order : Object.keys(facts)
    return `(${names.map((one) => write(facts[one], one)).join(',')}`
  }
  const clocks = [
    m.wall - m.theirs,
    s.clocks.serviceMs === null ? null : s.clocks.serviceMs - EPOCH_MS - m.theirs,
  ]
  return write(s, '') + write(m, '') + clocks.join()
}

/** The first instant after now that the observer knows. */
function instantAfter(now: number, value: object): number {
  let first = Infinity
  for (const [name, each] of Object.entries(value)) {
    if (typeof each === 'object' && each !== null) first = Math.min(first, instantAfter(now, each as object))
    else if (name.endsWith('At') && typeof each === 'number' && each > now) first = Math.min(first, each)
  }
  return first
}

interface History {
  readonly event: Event
  readonly up: History | undefined
}
function told({ event: [act, what = ''], up }: History): string {
  const text = `${act} ${typeof what === 'object' ? `${what.pair} (${what.by})` : what}`.trim()
  return up === undefined ? text : `${told(up)} · ${text}`
}

/**
 * Plays all histories up to this depth, or for so many states. Gives the number of different situations, and the rule
 * that was broken first, with the history that did; null: none was.
 */
export function explore(
  [answers, acts]: readonly [string, string],
  { depth = Infinity, states = Infinity, play = machine },
) {
  const seen = new Set<string>()
  const facts = { service: serviceOf('X'), policy: POLICY, pair: 'A' }
  const s = initialState(facts, { bootMs: 0, wallMs: EPOCH_MS })
  let level: Node[] = [{ s, m: OBSERVER, now: 0 }]
  let h: History = { event: ['start'], up: undefined }

  /** The new situations after each event that can come. */
  const follow = (node: Node): Node[] =>
    eventsAt(node, { answers, acts, play }).flatMap((event) => {
      h = { event, up: node.h }
      const after = createStep(play, node).play(event)
      const { size } = seen
      return seen.add(keyOf(after)).size > size ? [{ ...after, h }] : []
    })

  try {
    for (let left = depth; left > 0 && level.length > 0; left -= 1)
      level = level.flatMap((node) => (seen.size > states ? [] : follow(node)))
    return { states: seen.size, broken: null }
  } catch (error) {
    return { states: seen.size, broken: { rule: (error as Error).message, history: told(h) } }
  }
}

function eventsAt(
  { s, m, now }: Node,
  { answers, acts, play }: { answers: string; acts: string; play: Machine },
): Event[] {
  const instant = { bootMs: now, wallMs: EPOCH_MS + now + m.wall }
  const n = play.next(s, instant)
  const events: Event[] = acts
    .split(' ')
    .filter((act) => m.clocks > 0 || (act !== 'jump' && act !== 'pause'))
    .map((act) => [act])
  if (n.atMs <= now) events.push(['ask', n])
  else {
    const at = Math.min(instantAfter(now, m), n.atMs)
    if (at < Infinity) events.push(['wait', at])
  }
  if (m.flight)
    for (const answer of answers.split(' ')) if (answer !== 'same' || m.token) events.push(['answer', answer])
  return events
}
