// The pace and the price of requests on both sockets, and newcomers beside very many others.
import { end, lineReader, NODE, outputOf, ownFile, start } from '../programs.ts'
import { interleaved, mapSamples, median, type Contestant, type Samples } from '../rounds.ts'
import { forBoth, ratioRow, valueRow, type Bar, type Row } from '../row.ts'
import { answers, ask, freshToken, serverOf, type Server, type Trio, type World } from '../world.ts'

/** The output of `load ask`. */
interface Asked {
  readonly requests: number
  readonly lost: number
  readonly seconds: number
  readonly cpuNs: number
  readonly p50Ns: number
  readonly p99Ns: number
}
interface Connected {
  readonly lost: number
  readonly cpuNs: number
  readonly seconds: number
}
interface Burst {
  readonly refused: number
  readonly answered: number
}

const paceOf = ({ requests, seconds }: Asked): number => requests / seconds
/** In µs for each request. */
const cpuOf = ({ cpuNs, requests }: Asked): number => cpuNs / requests / 1_000

/** Many short rounds: what else the machine does lasts for seconds, and is then the same for all in most rounds. */
const ROUNDS = 25
const SECONDS = 0.15

export async function answerRows(world: World, trio: Trio, progress: (what: string) => void): Promise<Row[]> {
  progress('token.get, one connection')
  const one = await askInTurn(world, trio, { protocol: 'ipc', connections: 1, rounds: 5 })
  progress('token.get, 100 connections')
  const hundred = await askInTurn(world, trio, { protocol: 'ipc', connections: 100 })
  progress('token.get, 1,000 connections')
  const thousand = await askInTurn(world, trio, { protocol: 'ipc', connections: 1_000 })
  const others = await otherServerRows(world, trio, progress)
  return [
    ...paceRows(hundred, 'token.get, 100 connections', {
      pace: { atLeast: 1.1 },
      cpu: { bar: { atMost: 0.85 }, sandboxedBar: { atMost: 1.8 } },
    }),
    ...others,
    ...paceRows(thousand, 'token.get, 1,000 connections', {
      cpu: { bar: { atMost: 0.75 }, sandboxedBar: { atMost: 1.4 } },
    }),
    latencyRow(one, { what: 'latency, one connection', pick: ({ p50Ns }) => p50Ns }),
    latencyRow(thousand, { what: 'latency at 1,000, p99', pick: ({ p99Ns }) => p99Ns }),
    ...(await httpRows(world, trio, progress)),
    ...(await connectRows(world, trio, progress)),
    await burstRow(world, trio, progress),
    ...(await newcomerRows(trio, progress)),
  ]
}

async function askInTurn(
  world: World,
  trio: Trio,
  {
    protocol,
    connections,
    rounds = ROUNDS,
  }: { protocol: 'ipc' | 'http'; connections: number; rounds?: number },
): Promise<Samples<Asked>> {
  const samples = await interleaved(rounds, async (who) => {
    const { pid, path } = trio[who]
    return load<Asked>(world, ['ask', protocol, path, pid, connections, SECONDS])
  })
  for (const { lost } of Object.values(samples).flat()) {
    if (lost > 0) throw new Error(`${lost} requests of ${connections} connections were lost`)
  }
  return samples
}

async function load<T>({ load: program }: World, words: readonly (string | number)[]): Promise<T> {
  return JSON.parse(await outputOf([program, ...words.map(String)])) as T
}

function paceRows(
  samples: Samples<Asked>,
  what: string,
  bars: { pace?: Bar; cpu: { bar: Bar; sandboxedBar?: Bar } },
): Row[] {
  return [
    ratioRow(mapSamples(samples, paceOf), { what, unit: 'requests/s', ...(bars.pace && { bar: bars.pace }) }),
    ratioRow(mapSamples(samples, cpuOf), { what: `… CPU for each request`, unit: 'µs', ...bars.cpu }),
  ]
}

function latencyRow(
  samples: Samples<Asked>,
  { what, pick }: { what: string; pick: (asked: Asked) => number },
): Row {
  return ratioRow(
    mapSamples(samples, (asked) => pick(asked) / 1_000),
    { what, unit: 'µs' },
  )
}

/** Against a bare server that has no JIT either, and against one in C. */
async function otherServerRows(world: World, trio: Trio, progress: (what: string) => void): Promise<Row[]> {
  progress('token.get, other servers')
  const others = {
    jitless: [NODE, '--jitless', ownFile('bare-ipc.mjs')],
    inC: [world.epollServer],
  }
  const servers = { ...trio } as Record<Contestant | keyof typeof others, Server>
  for (const who of ['jitless', 'inC'] as const) {
    const path = `${world.directory}/${who}.sock`
    servers[who] = serverOf(start([...others[who], path, freshToken()]), path)
    await answers(path)
  }
  const samples = await interleaved(
    ROUNDS,
    (who) => load<Asked>(world, ['ask', 'ipc', servers[who].path, servers[who].pid, 100, SECONDS]),
    ['ours', 'sandboxed', 'jitless', 'inC'] as const,
  )
  for (const who of ['jitless', 'inC'] as const) await end(servers[who].process)
  const cpu = mapSamples(samples, cpuOf)
  const pace = mapSamples(samples, paceOf)
  return [
    ratioRow(
      { ours: [], bare: cpu.jitless, sandboxed: cpu.sandboxed },
      {
        what: '… against a bare server without a JIT',
        unit: 'µs',
        against: 'bare server, `--jitless`',
        sandboxedBar: { atMost: 0.65 },
      },
    ),
    ratioRow(
      { ours: pace.ours, bare: pace.inC, sandboxed: pace.sandboxed },
      {
        what: 'token.get, 100 connections, against C',
        unit: 'requests/s',
        against: 'epoll server in C',
        bar: { atLeast: 0.5 },
      },
    ),
  ]
}

async function httpRows(world: World, trio: Trio, progress: (what: string) => void): Promise<Row[]> {
  progress('GET /v1/token, 100 connections')
  const path = `${world.directory}/http-bare.sock`
  const bare = start([NODE, ownFile('bare-http.mjs'), path, freshToken()])
  const pathOf = (ipcPath: string): string => ipcPath.replace(/ipc\.sock$/, 'http.sock')
  await answers(trio.ours.path)
  const samples = await askInTurn(
    world,
    {
      ours: { ...trio.ours, path: pathOf(trio.ours.path) },
      bare: serverOf(bare, path),
      sandboxed: { ...trio.sandboxed, path: pathOf(trio.sandboxed.path) },
    },
    { protocol: 'http', connections: 100 },
  )
  await end(bare)
  return paceRows(samples, 'GET /v1/token, 100 connections', { cpu: { bar: { atMost: 1 } } })
}

async function connectRows(world: World, trio: Trio, progress: (what: string) => void): Promise<Row[]> {
  progress('10,000 connect-ask-close')
  const samples = await interleaved(5, async (who) => {
    const { pid, path } = trio[who]
    return load<Connected>(world, ['connect', 'ipc', path, pid, 10_000, 100])
  })
  return [
    ratioRow(
      mapSamples(samples, ({ seconds }) => seconds * 1_000),
      { what: '10,000 connect-ask-close', unit: 'ms' },
    ),
    ratioRow(
      mapSamples(samples, ({ cpuNs }) => cpuNs / 10_000 / 1_000),
      { what: '… CPU for each connection', unit: 'µs', bar: { atMost: 1.6 } },
    ),
    valueRow(
      mapSamples(samples, ({ lost }) => lost),
      { what: '… lost', unit: '', bar: { atMost: 0 } },
    ),
  ]
}

async function burstRow(world: World, trio: Trio, progress: (what: string) => void): Promise<Row> {
  progress('1,000 connects while paused')
  const samples = await interleaved(1, async (who) => {
    const { pid, path } = trio[who]
    return load<Burst>(world, ['burst', 'ipc', path, pid, 1_000])
  })
  return valueRow(
    mapSamples(samples, ({ answered }) => 1_000 - answered),
    { what: 'refused of 1,000 while paused', unit: '', bar: { atMost: 0 } },
  )
}

const NEWCOMERS = 40

/** A new client's answer beside 256 connections of one user that send requests as fast as they are taken. */
async function newcomerRows(trio: Trio, progress: (what: string) => void): Promise<Row[]> {
  progress('a newcomer beside 256 busy connections')
  const waits: Record<Contestant, number[]> = { ours: [], bare: [], sandboxed: [] }
  for (const who of ['ours', 'sandboxed'] as const) {
    const { path } = trio[who]
    const request = '{"type":"token.get","data":{"id":"1"}}\f'
    const flood = { path, connections: 256, request, burst: 400 }
    const clients = start([NODE, ownFile('../support/flood.mjs'), JSON.stringify(flood)])
    await lineReader(clients)()
    for (let count = 0; count < NEWCOMERS; count += 1) {
      const from = performance.now()
      await ask(path, { type: 'token.get', data: { id: '1' } })
      waits[who].push(performance.now() - from)
    }
    await end(clients, 'SIGKILL')
  }
  const rowOf = (what: string, pick: (values: readonly number[]) => number, atMost: number): Row =>
    valueRow(
      { ours: [pick(waits.ours)], bare: [], sandboxed: [pick(waits.sandboxed)] },
      { what, unit: 'ms', ...forBoth(atMost) },
    )
  return [
    rowOf('newcomer beside 256 busy connections, p50', median, 200),
    rowOf('… the slowest of 40', (values) => Math.max(...values), 1_000),
  ]
}
