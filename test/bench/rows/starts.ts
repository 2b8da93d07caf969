// The cost of a start: the daemon until it answers, the commands until they have printed the token, and their peers.
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { CLI, end, NODE, outputOf, ownFile, start } from '../programs.ts'
import { interleaved, mapSamples, type Contestant, type Samples } from '../rounds.ts'
import { median } from '../rounds.ts'
import { ratioRow, type Bar, type Row } from '../row.ts'
import { freshToken, prepareHome, startDaemon, type Home, type Trio, type World } from '../world.ts'

const ROUNDS = 15
const RUNS_OF_NODE = 3

export async function startRows(world: World, trio: Trio, progress: (what: string) => void): Promise<Row[]> {
  progress('start to the first answer')
  return [...(await firstAnswerRows(world)), ...(await tokenRows(world, trio, progress))]
}

/** With a kept token, as after a restart, nothing has to be fetched; a cold start has nothing, and fetches. */
async function firstAnswerRows(world: World): Promise<Row[]> {
  const homes = { ours: await keptHome(world, 'ours'), sandboxed: await keptHome(world, 'sandboxed') }
  return [
    await firstAnswerRow(world, homes, {
      what: 'start to the first answer, token kept',
      prepare: () => undefined,
      bar: { atMost: 2.3 },
      sandboxedBar: { atMost: 2.7 },
    }),
    await firstAnswerRow(world, homes, {
      what: '… cold, with a fetch',
      prepare: forgetAll,
      bar: { atMost: 3.1 },
      sandboxedBar: { atMost: 3.6 },
    }),
  ]
}

function forgetAll({ runtime, env }: Home): void {
  for (const directory of [runtime, env['STATE_DIRECTORY'] ?? runtime])
    for (const name of readdirSync(directory)) rmSync(join(directory, name))
}

async function firstAnswerRow(
  world: World,
  homes: Record<'ours' | 'sandboxed', Home>,
  options: { what: string; prepare: (home: Home) => void; bar: Bar; sandboxedBar: Bar },
): Promise<Row> {
  const { what, prepare, bar, sandboxedBar } = options
  const barePath = join(world.directory, 'start-bare.sock')
  const daemon = (home: Home): Promise<string> => {
    prepare(home)
    return serve(world, home.ipcPath, home.command, home.env)
  }
  const commandOf: Record<Contestant, () => Promise<string>> = {
    ours: () => daemon(homes.ours),
    sandboxed: () => daemon(homes.sandboxed),
    bare: () => serve(world, barePath, [NODE, ownFile('bare-ipc.mjs'), barePath, freshToken()]),
  }
  const samples = await interleaved(ROUNDS, async (who) => Number(await commandOf[who]()))
  return ratioRow(
    mapSamples(samples, (ns) => ns / 1e6),
    { what, unit: 'ms', bar, sandboxedBar },
  )
}

async function keptHome(world: World, who: 'ours' | 'sandboxed'): Promise<Home> {
  const home = prepareHome(world, `start-${who}`, { isSandboxed: who === 'sandboxed' })
  await end(await startDaemon(home))
  return home
}

async function serve(
  world: World,
  path: string,
  command: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<string> {
  const program = start([world.starts, 'serve', path, ...command], {
    env,
    logFile: join(world.directory, 'start.log'),
  })
  return (await program.stdout.setEncoding('utf8').toArray()).join('')
}

// ---- commands -------------------------------------------------------------------------------------------------------

async function tokenRows(world: World, trio: Trio, progress: (what: string) => void): Promise<Row[]> {
  progress('kyc-tokend token')
  const { path } = trio.ours
  const runtime = path.replace(/\/ipc\.sock$/, '')
  const env = { KYC_TOKEND_SOCKET: path }
  const token = readFileSync(join(runtime, 'token'), 'utf8')
  const commands = {
    node: [NODE, CLI, 'token'],
    sandboxed: [NODE, '--jitless', CLI, 'token'],
    empty: [NODE, ownFile('empty.mjs')],
  }
  for (const name of ['node', 'sandboxed'] as const) {
    const printed = await outputOf(commands[name], env)
    if (printed.trim() !== token) throw new Error(`${commands[name].join(' ')} does not print the token`)
  }
  const inNode = await interleaved(ROUNDS, (who) =>
    run(world, { ours: commands.node, bare: commands.empty, sandboxed: commands.sandboxed }[who], {
      env,
      count: RUNS_OF_NODE,
    }),
  )
  return [
    ratioRow(inMs(inNode), {
      what: 'kyc-tokend token, in Node',
      unit: 'ms',
      against: 'empty program',
    }),
  ]
}

function inMs(samples: Samples<number>): Samples<number> {
  return mapSamples(samples, (ns) => ns / 1e6)
}

/** The median of so many runs, in ns. */
async function run(
  world: World,
  command: readonly string[],
  { env, count, mayFail = false }: { env: NodeJS.ProcessEnv; count: number; mayFail?: boolean },
): Promise<number> {
  const lines = await outputOf([world.starts, mayFail ? 'try' : 'run', String(count), ...command], env)
  return median(lines.trim().split('\n').map(Number))
}

// ---- peers ----------------------------------------------------------------------------------------------------------

/** The usual alternatives: time in which one gives a token, in ms; null where it is not installed. */
export interface Peer {
  readonly what: string
  readonly ms: number | null
  readonly remark: string
}

export async function peers(world: World, trio: Trio, progress: (what: string) => void): Promise<Peer[]> {
  progress('what people use instead')
  const { path } = trio.ours
  const runtime = path.replace(/\/ipc\.sock$/, '')
  const url = 'http://localhost/v1/token'
  const httpPath = join(runtime, 'http.sock')
  const timed = async (
    what: string,
    remark: string,
    command: readonly string[],
    env: NodeJS.ProcessEnv = {},
  ): Promise<Peer> => {
    const isThere = command[0]?.startsWith('/') || (await isInstalled(command[0] ?? ''))
    if (!isThere) return { what, ms: null, remark: 'not installed' }
    const ns = []
    for (let round = 0; round < 5; round += 1)
      ns.push(await run(world, command, { env, count: 10, mayFail: true }))
    return { what, ms: median(ns) / 1e6, remark }
  }
  return [
    await timed('cat of the token file', 'no look at its expiry', ['cat', join(runtime, 'token')]),
    await timed('curl of http.sock', '', [
      'curl',
      '-sS',
      '--unix-socket',
      httpPath,
      '-H',
      'Accept: text/plain',
      url,
    ]),
    await timed('kyc-tokend token, in Node', '', [NODE, CLI, 'token'], { KYC_TOKEND_SOCKET: path }),
    await oidcToken(world, timed),
  ]
}

/**
 * oidc-agent cannot be given an account without a network: what is timed is `oidc-token` asking the running agent for
 * one that it does not have, a start and a round trip as for any other.
 */
async function oidcToken(
  world: World,
  timed: (what: string, remark: string, command: readonly string[], env?: NodeJS.ProcessEnv) => Promise<Peer>,
): Promise<Peer> {
  const what = 'oidc-token of oidc-agent'
  if (!(await isInstalled('oidc-token')) || !(await isInstalled('oidc-agent')))
    return { what, ms: null, remark: 'not installed (Debian: oidc-agent-cli)' }
  const home = { HOME: world.directory }
  const socket = join(world.directory, 'oidc-agent.sock')
  const agent = start(['oidc-agent', '--console', '--no-autoload', '--socket-path', socket], { env: home })
  for (let look = 0; look < 200 && !existsSync(socket); look += 1)
    await new Promise((resolve) => void setTimeout(resolve, 10))
  if (!existsSync(socket)) {
    await end(agent, 'SIGKILL')
    return { what, ms: null, remark: 'oidc-agent does not start here' }
  }
  const peer = await timed(
    what,
    'start and round trip only: no account without a network',
    ['oidc-token', 'bench'],
    {
      ...home,
      OIDC_SOCK: socket,
    },
  )
  await end(agent)
  return peer
}

async function isInstalled(name: string): Promise<boolean> {
  return outputOf(['sh', '-c', `command -v ${name}`]).then(
    () => true,
    () => false,
  )
}
