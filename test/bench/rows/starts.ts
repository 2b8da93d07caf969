// What starting costs: the daemon until it answers, the commands until they have printed the token, and their peers.
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { CLI, end, NODE, outputOf, ownFile, start } from '../programs.ts'
import { interleaved, mapSamples, type Contestant, type Samples } from '../rounds.ts'
import { median } from '../rounds.ts'
import { ratioRow, type Row } from '../row.ts'
import { freshToken, preparePlace, startDaemon, type Place, type Trio, type World } from '../world.ts'

const ROUNDS = 15
const RUNS_OF_NODE = 3
const RUNS_OF_SHELL = 30

export async function startRows(world: World, trio: Trio, tell: (what: string) => void): Promise<Row[]> {
  tell('start to the first answer')
  return [await firstAnswerRow(world), ...(await tokenRows(world, trio, tell))]
}

/** From a kept token, as after a restart: everything is there, nothing has to be fetched. */
async function firstAnswerRow(world: World): Promise<Row> {
  const places = { ours: await keptPlace(world, 'ours'), jitless: await keptPlace(world, 'jitless') }
  const barePath = join(world.directory, 'start-bare.sock')
  const commandOf: Record<Contestant, () => Promise<string>> = {
    ours: () => serve(world, places.ours.ipcPath, places.ours.command, places.ours.env),
    jitless: () => serve(world, places.jitless.ipcPath, places.jitless.command, places.jitless.env),
    bare: () => serve(world, barePath, [NODE, ownFile('bare-ipc.mjs'), barePath, freshToken()]),
  }
  const samples = await interleaved(ROUNDS, async (who) => Number(await commandOf[who]()))
  return ratioRow(
    mapSamples(samples, (ns) => ns / 1e6),
    { what: 'start to the first answer, token kept', unit: 'ms', bar: { atMost: 1.5 } },
  )
}

async function keptPlace(world: World, who: 'ours' | 'jitless'): Promise<Place> {
  const place = preparePlace(world, `start-${who}`, { isJitless: who === 'jitless' })
  await end(await startDaemon(place))
  return place
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

async function tokenRows(world: World, trio: Trio, tell: (what: string) => void): Promise<Row[]> {
  tell('kyc-tokend token')
  const { path } = trio.ours
  const runtime = path.replace(/\/ipc\.sock$/, '')
  const env = { KYC_TOKEND_SOCKET: path }
  const token = readFileSync(join(runtime, 'token'), 'utf8')
  const front = frontIn(world, runtime)
  const commands = {
    node: [NODE, CLI, 'token'],
    jitless: [NODE, '--jitless', CLI, 'token'],
    empty: [NODE, ownFile('empty.mjs')],
    front: [front, 'token'],
    cat: ['cat', join(runtime, 'token')],
  }
  for (const name of ['node', 'jitless', 'front', 'cat'] as const) {
    const printed = await outputOf(commands[name], name === 'front' ? {} : env)
    if (printed.trim() !== token) throw new Error(`${commands[name].join(' ')} does not print the token`)
  }
  const inNode = await interleaved(ROUNDS, (who) =>
    run(world, { ours: commands.node, bare: commands.empty, jitless: commands.jitless }[who], {
      env,
      count: RUNS_OF_NODE,
    }),
  )
  const inShell = await interleaved(ROUNDS, async (who) =>
    who === 'jitless'
      ? NaN
      : run(world, who === 'ours' ? commands.front : commands.cat, { env: {}, count: RUNS_OF_SHELL }),
  )
  return [
    ratioRow(inMs(inNode), {
      what: 'kyc-tokend token, in Node',
      unit: 'ms',
      against: 'empty program',
      bar: { atMost: 1.3 },
    }),
    ratioRow(
      { ...inMs(inShell), jitless: [] },
      {
        what: 'kyc-tokend token, through its sh front',
        unit: 'ms',
        against: 'cat',
        bar: { atMost: 1.6 },
      },
    ),
  ]
}

function inMs(samples: Samples<number>): Samples<number> {
  return mapSamples(samples, (ns) => ns / 1e6)
}

/** The front that the package installs, for another place than /run/kyc-tokend. */
function frontIn(world: World, runtime: string): string {
  const front = join(world.directory, 'front')
  const text = readFileSync(ownFile('../../systemd/kyc-tokend.sh'), 'utf8')
  writeFileSync(front, text.replaceAll('/run/kyc-tokend/', `${runtime}/`))
  chmodSync(front, 0o755)
  return front
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

/** What people use instead: how long one takes to give a token, in ms; null where it is not installed. */
export interface Peer {
  readonly what: string
  readonly ms: number | null
  readonly remark: string
}

export async function peers(world: World, trio: Trio, tell: (what: string) => void): Promise<Peer[]> {
  tell('what people use instead')
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
    await timed('kyc-tokend token, sh front', '', [frontIn(world, runtime), 'token']),
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
