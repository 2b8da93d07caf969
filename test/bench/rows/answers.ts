// How fast and at what price requests are answered on both sockets, and what happens when very many come at once.
import { end, NODE, outputOf, ownFile, start } from '../programs.ts'
import { interleaved, mapSamples, type Samples } from '../rounds.ts'
import { ratioRow, valueRow, type Row } from '../row.ts'
import { answers, freshToken, serverOf, type Trio, type World } from '../world.ts'

/** What `load ask` prints. */
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
  readonly seconds: number
}
interface Burst {
  readonly refused: number
  readonly answered: number
}

const ROUNDS = 7
const SECONDS = 0.6

export async function answerRows(world: World, trio: Trio, tell: (what: string) => void): Promise<Row[]> {
  tell('token.get, one connection')
  const one = await askInTurn(world, trio, { protocol: 'ipc', connections: 1 })
  tell('token.get, 100 connections')
  const hundred = await askInTurn(world, trio, { protocol: 'ipc', connections: 100 })
  tell('token.get, 1,000 connections')
  const thousand = await askInTurn(world, trio, { protocol: 'ipc', connections: 1_000 })
  return [
    ...paceRows(hundred, 'token.get, 100 connections', { isCpuBarred: true }),
    ...paceRows(thousand, 'token.get, 1,000 connections', { isCpuBarred: true }),
    latencyRow(one, { what: 'latency, one connection', pick: ({ p50Ns }) => p50Ns, atMost: 1.15 }),
    latencyRow(thousand, { what: 'latency at 1,000, p99', pick: ({ p99Ns }) => p99Ns, atMost: 1.25 }),
    ...(await httpRows(world, trio, tell)),
    ...(await connectRows(world, trio, tell)),
    await burstRow(world, trio, tell),
  ]
}

async function askInTurn(
  world: World,
  trio: Trio,
  { protocol, connections }: { protocol: 'ipc' | 'http'; connections: number },
): Promise<Samples<Asked>> {
  const samples = await interleaved(ROUNDS, async (who) => {
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

function paceRows(samples: Samples<Asked>, what: string, { isCpuBarred }: { isCpuBarred: boolean }): Row[] {
  return [
    ratioRow(
      mapSamples(samples, ({ requests, seconds }) => requests / seconds),
      { what, unit: 'requests/s', bar: { atLeast: 0.95 } },
    ),
    ratioRow(
      mapSamples(samples, ({ cpuNs, requests }) => cpuNs / requests / 1_000),
      { what: `… CPU for each request`, unit: 'µs', ...(isCpuBarred && { bar: { atMost: 1.1 } }) },
    ),
  ]
}

function latencyRow(
  samples: Samples<Asked>,
  { what, pick, atMost }: { what: string; pick: (asked: Asked) => number; atMost: number },
): Row {
  return ratioRow(
    mapSamples(samples, (asked) => pick(asked) / 1_000),
    { what, unit: 'µs', bar: { atMost } },
  )
}

async function httpRows(world: World, trio: Trio, tell: (what: string) => void): Promise<Row[]> {
  tell('GET /v1/token, 100 connections')
  const path = `${world.directory}/http-bare.sock`
  const bare = start([NODE, ownFile('bare-http.mjs'), path, freshToken()])
  const pathOf = (ipcPath: string): string => ipcPath.replace(/ipc\.sock$/, 'http.sock')
  await answers(trio.ours.path)
  const samples = await askInTurn(
    world,
    {
      ours: { ...trio.ours, path: pathOf(trio.ours.path) },
      bare: serverOf(bare, path),
      jitless: { ...trio.jitless, path: pathOf(trio.jitless.path) },
    },
    { protocol: 'http', connections: 100 },
  )
  await end(bare)
  return paceRows(samples, 'GET /v1/token, 100 connections', { isCpuBarred: false })
}

async function connectRows(world: World, trio: Trio, tell: (what: string) => void): Promise<Row[]> {
  tell('10,000 connect-ask-close')
  const samples = await interleaved(5, async (who) => {
    const { pid, path } = trio[who]
    return load<Connected>(world, ['connect', 'ipc', path, pid, 10_000, 100])
  })
  return [
    ratioRow(
      mapSamples(samples, ({ seconds }) => seconds * 1_000),
      { what: '10,000 connect-ask-close', unit: 'ms', bar: { atMost: 1.15 } },
    ),
    valueRow(
      mapSamples(samples, ({ lost }) => lost),
      { what: '… lost', unit: '', bar: { atMost: 0 } },
    ),
  ]
}

async function burstRow(world: World, trio: Trio, tell: (what: string) => void): Promise<Row> {
  tell('1,000 connects while paused')
  const samples = await interleaved(1, async (who) => {
    const { pid, path } = trio[who]
    return load<Burst>(world, ['burst', 'ipc', path, pid, 1_000])
  })
  return valueRow(
    mapSamples(samples, ({ answered }) => 1_000 - answered),
    { what: 'refused of 1,000 while paused', unit: '', bar: { atMost: 0 } },
  )
}
