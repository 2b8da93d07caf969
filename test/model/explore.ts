// The two drivers of the model: every order of acts up to a depth, and paths of chance.
import { createHash } from 'node:crypto'
import { createRandom } from '../support/random.ts'
import { ANSWERS } from './service.ts'
import { createWorld, type World } from './world.ts'

interface Start {
  readonly acts: readonly string[]
  /** Of the world. */
  readonly options?: Parameters<typeof createWorld>[0]
  /** Only for this many hosts; null: for any. */
  readonly hosts?: number
}
const REFUSED = ['answer:0:token', 'operator:0', 'answer:0:refused']
const TRIAL = ['answer:0:token', 'wait:16', 'rotate:0:b', 'wait:16']
/** Where an exploration begins, by name. Chance is always in the middle, but where it is named. */
export const STARTS: Readonly<Record<string, Start>> = {
  new: { acts: [] },
  refused: { acts: REFUSED },
  trial: { acts: TRIAL },
  // The unit: a mark instead of the id of the boot; and the least that chance draws.
  unit: { acts: TRIAL, options: { hasBootId: false, random: () => 0 }, hosts: 1 },
  late: { acts: REFUSED, options: { hasBootId: false, random: () => 0.999 }, hosts: 1 },
  // All wait, by the service's own words.
  busy: { acts: ['answer:0:busy', 'wait:2'], hosts: 2 },
  // Each host has a certificate of its own, which the service may refuse.
  own: { acts: ['answer:0:token'], options: { hasOwnProof: true }, hosts: 2 },
  // The second host does not ask, and the store takes its time.
  waits: { acts: ['answer:0:token'], options: { waits: [1], storeMs: [150, 150] }, hosts: 2 },
}

/** An act, and its price in faults. */
type Priced = readonly [act: string, faults: number]
/** The faults that a path has at most: with one host, with several. */
const MAX_FAULTS = { alone: 2, shared: 1 }
const WAITS = [2, 16, 80, 301]
const EFFECTS = [1, 2, 3, 4, 5, 6]
/** Where in a step other acts are done. */
const BETWEEN = [1, 2, 3]

/** The acts that can come in this situation. `isFew`: only those that matter most, for a greater depth. */
function actsIn(world: World, { isFew = false } = {}): Priced[] {
  const acts: Priced[] = WAITS.map((seconds): Priced => [`wait:${seconds}`, 0])
  for (const host of world.hosts) {
    const { index, life, armed, files } = host
    const of = (names: readonly string[], faults = 0): number =>
      acts.push(...names.map((name): Priced => [name.replace('@', String(index)), faults]))
    if (life.inbox !== null) {
      of(['go:@'])
      continue
    }
    if (host.operators.length > 0 && !isFew) of(['leave:@'])
    if (world.isAsking(host)) of(ANSWERS.map((kind) => `answer:@:${kind}`))
    of(['operator:@', 'reject:@', 'need:@'])
    const other = otherPair(files)
    of(['crash:@', 'restart:@', 'reboot:@', `reload:@:${other}`, `reload:@:${files}`, `rotate:@:${other}`], 1)
    if (world.hosts.length > 1 && host.barred === null)
      of(files.includes('+') ? ['bar:@:rejected', 'bar:@:refused'] : ['bar:@:rejected'], 1)
    if (!isFew) moreActs(world, host, of)
    if (files !== world.nameOf(host)) of([`rotate:@:${files}`])
    if (armed === null)
      of(
        EFFECTS.map((effects) => `arm:@:crash:${effects}`),
        1,
      )
    if (armed === null)
      of(
        EFFECTS.map((effects) => `arm:@:stop:${effects}`),
        1,
      )
  }
  if (world.hosts.length > 1) acts.push(...storeActs(world))
  return acts
}

/** The other of the two pairs, with the same certificate; where it lies in the files, the service is the same. */
function otherPair(files: string): string {
  const [former, ...certificate] = files.replace('@there', '').split('+')
  return [former === 'a' ? 'b' : 'a', ...certificate].join('+')
}

/** What happens to a host more rarely. */
function moreActs(
  world: World,
  host: World['hosts'][number],
  of: (names: readonly string[], faults?: number) => unknown,
): void {
  const { files, armed } = host
  const other = otherPair(files)
  const policy = host.policy === 'usual' ? 'quick' : 'usual'
  const isMoved = world.hosts.length > 1 && host.prefix !== 'kyc-tokend'
  of([`policy:@:${policy}`, 'hangs:@', `reload:@:${files}@there`.replace('@there@there', '')], 1)
  if (world.hosts.length === 1) of(['sleep:3600', 'wall:@:3600', 'wall:@:-3600'], 1)
  else if (isMoved) of(['move:@:kyc-tokend'])
  else of(['move:@:none', 'move:@:other'], 1)
  if (armed === null) {
    const others = ['operator', 'reject', `reload.${other}`, `rotate.${other}`]
    for (const name of others)
      of(
        BETWEEN.map((effects) => `arm:@:${name}:${effects}`),
        1,
      )
  }
}

/** What happens to the store, and what a process that can write to it does. */
function storeActs(world: World): Priced[] {
  const { isWell, hasRecord, hasLease } = world.store()
  if (!isWell) return [['find', 0]]
  const names = ['lose', 'hang', 'cut:0', 'flush', 'deaf', 'clock:-3600', 'evil:garbage', 'evil:lease']
  if (hasRecord) names.push('evil:replay')
  if (hasLease) names.push('evil:kept')
  return names.map((name): Priced => [name, 1])
}

/** Facts that only people read, or that mean nothing after the path. */
const LEFT_OUT = new Set(
  (
    'detail since wallMs requests lastRequestAt lastSuccessAt generation answers answer tokenless ' +
    'tokenlessFrom refusedBy baseUrl received written accessToken fingerprint'
  ).split(' '),
)

/**
 * The text of a situation: two with the same text mean the same. Instants are seconds from now, and tokens
 * are by their order.
 */
function textOf(world: World): string {
  const newest = world.tokens.size
  const seconds = (ms: number): number => Math.max(-400, Math.round(ms / 1_000))
  /** Pairs of fence and id are by their order. */
  const pairs = pairsIn(world)
  const rankOf = (text: string | null): number => pairs.findIndex((pair) => text?.startsWith(pair))
  function shape(value: unknown, name: string, shiftMs: number): unknown {
    if (typeof value === 'number' && /(?:Ms|[Aa]sked|[Pp]ace)$/.test(name) && !/life|age|early/i.test(name))
      return value === 0 ? 0 : seconds(value + shiftMs - world.nowMs())
    if (name === 'known' && typeof value === 'string') {
      const { fence, id, isWritten } = JSON.parse(value) as { fence: number; id: string; isWritten: boolean }
      return [rankOf(`${fence} ${id}`), isWritten]
    }
    if (typeof value !== 'object' || value === null) return value
    const { accessToken } = value as { accessToken?: string }
    const number =
      accessToken === undefined ? undefined : newest - (world.tokens.get(accessToken)?.number ?? -9)
    const facts = Object.entries(value)
      .filter(([key]) => !LEFT_OUT.has(key))
      .map(([key, item]): [string, unknown] => [key, shape(item, key, shiftMs)])
    return number === undefined ? Object.fromEntries(facts) : [number, ...facts]
  }
  const hosts = world.hosts.map((host) =>
    JSON.stringify([
      shape(host.life.parts.keeper.state(), '', host.bootedAtMs),
      [host.disk.token, host.disk.state].map((text) => text && shape(JSON.parse(text), '', host.bootedAtMs)),
      host.armed,
      host.barred,
      [host.files, host.policy, host.prefix, host.operators.length > 0],
      // After the next boot waits follow the wall clock.
      [host.isWallSet, host.wallAheadMs, host.hangsMs, host.hungSinceMs !== null],
      host.owed.map((debt) => [debt.act, seconds(debt.byMs - world.nowMs())]),
      host.life.inbox?.length,
      world.isAsking(host),
      world.nameOf(host),
      [...host.rules.accounts].map(([account, known]) => [
        account,
        known.isRefused,
        known.actedMs > 0,
        ...[known.notBeforeMs, known.rejectedUntilMs].map((ms) => seconds(Math.max(0, ms - world.nowMs()))),
      ]),
    ]),
  )
  const servers = [...world.servers.values()].map((server) => {
    const lease = server.text('lease')
    const kind = lease === null || lease === 'e'.repeat(16) ? lease : lease.includes(' ')
    return [
      rankOf(server.text('record')),
      kind,
      ...(['record', 'lease'] as const).map((key) => seconds(server.leftMs(key))),
    ]
  })
  // Hosts are alike: only their order is by name.
  return [...hosts.toSorted(), JSON.stringify([servers, world.store().facts])].join('\n')
}

const hashOf = (text: string): string => createHash('sha1').update(text).digest('base64')

/** The pairs that hosts and the store know, in their order. */
function pairsIn({ hosts, servers }: World): string[] {
  const texts = hosts.flatMap(({ life }) => {
    const { token, objection } = life.parts.keeper.state()
    return [token?.known, objection?.known].filter((known) => typeof known === 'string')
  })
  const known = texts
    .map((text) => JSON.parse(text) as { fence: number; id: string })
    .map(({ fence, id }) => `${fence} ${id}`)
  const records = [...servers.values()].map((server) => server.text('record')?.split(' ', 2).join(' '))
  return [...new Set([...known, ...records.filter((record) => record !== undefined)])].toSorted()
}

export interface Explored {
  readonly states: number
  readonly paths: number
  /** By rule, the first, and so shortest, path that broke it. */
  readonly broken: Readonly<Record<string, string>>
}
interface Path {
  readonly from: string
  readonly acts: readonly string[]
  readonly faults: number
}

/**
 * Plays every order of acts up to this depth from each start, breadth first. A path is played anew for each
 * act further, since promises cannot be copied; situations that mean the same are explored once.
 */
export async function explore({
  hosts,
  depth,
  isFew = false,
}: {
  hosts: number
  depth: number
  isFew?: boolean
}): Promise<Explored> {
  const seen = new Set<string>()
  /** The situations from which a calm breaks no rule. */
  const calmed = new Set<string>()
  const broken: Record<string, string> = {}
  let paths = 0

  async function calm(world: World): Promise<void> {
    const passed: string[] = []
    await world.calm(() => {
      // What makes the rules milder counts, too.
      const text = textOf(world) + world.hosts.map(({ isLate, mayAskAlone }) => `${isLate} ${mayAskAlone}`)
      const hash = hashOf(text)
      passed.push(hash)
      return calmed.has(hash)
    })
    if (world.broken.size === 0) for (const hash of passed) calmed.add(hash)
  }

  /**
   * Plays the path, checks all rules, and returns what can come next; nothing, if it is known, or broke a
   * rule.
   */
  async function visit({ from, acts, faults }: Path): Promise<Path[]> {
    paths += 1
    const world = await createWorld({ hosts, ...STARTS[from]?.options })
    const note = (rules: Iterable<string>, more = ''): void => {
      for (const rule of rules) broken[rule] ??= [`${from}:`, ...acts, more].join(' ').trim()
    }
    try {
      for (const act of [...(STARTS[from]?.acts ?? []), ...acts]) await world.act(act)
      note(world.broken)
      const hash = hashOf(textOf(world))
      if (seen.has(hash) || world.broken.size > 0) return []
      seen.add(hash)
      const next = actsIn(world, { isFew }).filter(
        ([, price]) => faults + price <= (hosts === 1 ? MAX_FAULTS.alone : MAX_FAULTS.shared),
      )
      world.checkSaved()
      note(world.broken, '(a crash)')
      // Of the many deep situations every fourth; of fleets, whose calm takes longer, every sixteenth.
      if (acts.length <= 2 || (hosts === 1 ? /^[A-P]/ : /^[A-D]/).test(hash)) await calm(world)
      note(world.broken, '(calm)')
      return next.map(([act, price]) => ({ from, acts: [...acts, act], faults: faults + price }))
    } catch (error) {
      note([`an error: ${(error as Error).message}`])
      return []
    } finally {
      world.end()
    }
  }

  // Each abort makes an error: their stacks would cost a third of the time.
  const { stackTraceLimit } = Error
  Error.stackTraceLimit = 0
  let frontier = Object.entries(STARTS)
    .filter(([, start]) => (start.hosts ?? hosts) === hosts)
    .map(([from]): Path => ({ from, acts: [], faults: 0 }))
  for (let level = 0; level <= depth; level += 1) {
    const next: Path[] = []
    for (const path of frontier) next.push(...(await visit(path)))
    frontier = next
  }
  Error.stackTraceLimit = stackTraceLimit
  return { states: seen.size, paths, broken }
}

/** Plays this path with these draws, then calm. Returns the rules that it broke. */
async function rulesBrokenBy(
  acts: readonly string[],
  { hosts, seed }: { hosts: number; seed: number },
): Promise<readonly string[]> {
  const world = await createWorld({ hosts, random: createRandom(seed) })
  try {
    for (const act of acts) await world.act(act)
    world.checkSaved()
    await world.calm()
    return [...world.broken]
  } catch (error) {
    return [`an error: ${(error as Error).message}`]
  } finally {
    world.end()
  }
}

/** Plays a story of so many acts of chance. Returns null, or a short story that breaks rules, and those. */
export async function wander({
  hosts,
  length,
  seed,
}: {
  hosts: number
  length: number
  seed: number
}): Promise<string | null> {
  const random = createRandom(seed)
  const world = await createWorld({ hosts, random: createRandom(seed) })
  let story: string[] = []
  while (story.length < length) {
    const acts = actsIn(world)
    const [act] = acts[Math.floor(random() * acts.length)]!
    story.push(act)
    await world.act(act)
  }
  world.end()
  const found = await rulesBrokenBy(story, { hosts, seed })
  if (found.length === 0) return null
  // The acts without which it breaks a rule, too, are left out.
  for (let index = story.length - 1; index >= 0; index -= 1) {
    const shorter = story.toSpliced(index, 1)
    if ((await rulesBrokenBy(shorter, { hosts, seed })).length > 0) story = shorter
  }
  const rules = await rulesBrokenBy(story, { hosts, seed })
  return `seed ${seed}: ${story.join(' ')}: ${rules.join('; ')}`
}
