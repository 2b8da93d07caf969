// The pace and the price of requests on both sockets, and newcomers beside very many others.
import { join } from 'node:path'
import { once } from 'node:events'
import {
  contestants,
  interleaved,
  mapSamples,
  median,
  type Contestant,
  type Row,
  type Samples,
} from './table.ts'
import {
  ask,
  end,
  freshToken,
  outputOf,
  ownProgram,
  prepareHome,
  start,
  startDaemon,
  startServer,
  withUnitFlags,
  type Program,
  type Server,
  type World,
} from './world.ts'

const ROUNDS = 25
const SECONDS = 0.15
const NEWCOMERS = 40

/** The output of load.c. */
interface Load {
  readonly requests: number
  readonly seconds: number
  readonly cpuNs: number
}

export async function answerRows(world: World, progress: (what: string) => void): Promise<Row[]> {
  const { ours, unit } = await startBoth(world, 'answers')
  const barePath = join(world.directory, 'bare.sock')
  const bareHttpPath = join(world.directory, 'bare-http.sock')
  const bare = await startServer(world, ownProgram('bare-ipc.mjs', barePath, freshToken()), barePath)
  const bareUnit = await startServer(
    world,
    withUnitFlags(ownProgram('bare-ipc.mjs', `${barePath}.unit`, freshToken())),
    `${barePath}.unit`,
  )
  const bareHttpOf = (path: string, program: Program): Server => {
    const process = start(program, join(world.directory, 'log'))
    return { process, pid: process.pid ?? 0, path }
  }
  const bareHttp = bareHttpOf(bareHttpPath, ownProgram('bare-http.mjs', bareHttpPath, freshToken()))
  const bareHttpUnit = bareHttpOf(
    `${bareHttpPath}.unit`,
    withUnitFlags(ownProgram('bare-http.mjs', `${bareHttpPath}.unit`, freshToken())),
  )
  const rows: Row[] = []
  for (const connections of [100, 1_000]) {
    progress(`token.get, ${connections} connections`)
    const samples = await measure(world, 'ipc', { ours, unit, bare, bareUnit }, connections)
    const isDecisive = connections === 100
    rows.push(
      {
        what: `token.get, ${connections.toLocaleString('en')} connections`,
        unitOfMeasure: 'requests/s',
        samples: mapSamples(samples, paceOf),
        ...(isDecisive ? { bar: { atLeast: 0.95 } } : {}),
      },
      {
        what: '… CPU for each request',
        unitOfMeasure: 'µs',
        samples: mapSamples(samples, cpuOf),
        ...(isDecisive ? { unitBar: { atMost: 2.2 } } : {}),
      },
    )
  }
  progress('GET /v1/token, 100 connections')
  const http = (server: Server): Server => ({ ...server, path: server.path.replace('ipc.sock', 'http.sock') })
  const servers = { ours: http(ours), unit: http(unit), bare: bareHttp, bareUnit: bareHttpUnit }
  const samples = await measure(world, 'http', servers, 100)
  rows.push(
    {
      what: 'GET /v1/token, 100 connections',
      unitOfMeasure: 'requests/s',
      samples: mapSamples(samples, paceOf),
      bar: { atLeast: 0.8 },
    },
    { what: '… CPU for each request', unitOfMeasure: 'µs', samples: mapSamples(samples, cpuOf) },
  )
  progress('newcomers beside 256 busy connections')
  rows.push(...(await newcomerRows(world, { ours, unit })))
  for (const { process } of [ours, unit, bare, bareUnit, bareHttp, bareHttpUnit]) await end(process)
  return rows
}

export async function startBoth(
  world: World,
  name: string,
  { service = world.service } = {},
): Promise<Record<'ours' | 'unit', Server>> {
  const ours = await startDaemon(world, prepareHome(world, name, { service }))
  const unit = await startDaemon(world, prepareHome(world, `${name}-unit`, { service, isUnit: true }))
  return { ours, unit }
}

const paceOf = ({ requests, seconds }: Load): number => requests / seconds
/** In µs for each request. */
const cpuOf = ({ cpuNs, requests }: Load): number => cpuNs / requests / 1_000

async function measure(
  { load }: World,
  protocol: 'ipc' | 'http',
  servers: Record<Contestant, Server>,
  connections: number,
): Promise<Samples<Load>> {
  return interleaved(ROUNDS, contestants, async (who) => {
    const { path, pid } = servers[who]
    const words = [protocol, path, pid, connections, SECONDS].map(String)
    return JSON.parse(await outputOf({ command: [load, ...words], env: {} })) as Load
  })
}

/** A new client's answer beside 256 connections of one user that send requests as fast as they are read. */
async function newcomerRows(world: World, servers: Record<'ours' | 'unit', Server>): Promise<Row[]> {
  const waits: Record<'ours' | 'unit', number[]> = { ours: [], unit: [] }
  for (const who of ['ours', 'unit'] as const) {
    const { path } = servers[who]
    const request = '{"type":"token.get","data":{"id":"1"}}\f'
    const flood = { path, connections: 256, request, burst: 400 }
    const clients = start(
      ownProgram('../support/flood.mjs', JSON.stringify(flood)),
      join(world.directory, 'log'),
    )
    await once(clients.stdout, 'data')
    for (let count = 0; count < NEWCOMERS; count += 1) {
      const from = performance.now()
      await ask(path, { type: 'token.get', data: { id: '1' } })
      waits[who].push(performance.now() - from)
    }
    await end(clients, 'SIGKILL')
  }
  const rowOf = (what: string, pick: (values: readonly number[]) => number, atMost: number): Row => ({
    what,
    unitOfMeasure: 'ms',
    compared: 'value',
    samples: { ours: [pick(waits.ours)], unit: [pick(waits.unit)] },
    bar: { atMost },
    unitBar: { atMost },
  })
  return [
    rowOf('a newcomer beside 256 busy connections', median, 200),
    rowOf('… the slowest of 40', (values) => Math.max(...values), 1_000),
  ]
}
