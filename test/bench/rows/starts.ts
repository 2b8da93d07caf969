// The cost of a start: the daemon until it answers, the commands until they have printed the token.
import { readdirSync, readFileSync, rmSync } from 'node:fs'
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
    ...(await firstAnswer(world, homes, {
      what: 'start to the first answer, token kept',
      prepare: () => undefined,
      bar: { atMost: 2.3 },
      sandboxedBar: { atMost: 2.7 },
    })),
    ...(await firstAnswer(world, homes, {
      what: 'cold, with a fetch',
      prepare: forgetAll,
      bar: { atMost: 3.1 },
      sandboxedBar: { atMost: 3.6 },
    })),
  ]
}

function forgetAll({ runtime, env }: Home): void {
  for (const directory of [runtime, env['STATE_DIRECTORY'] ?? runtime])
    for (const name of readdirSync(directory)) rmSync(join(directory, name))
}

async function firstAnswer(
  world: World,
  homes: Record<'ours' | 'sandboxed', Home>,
  options: { what: string; prepare: (home: Home) => void; bar: Bar; sandboxedBar: Bar },
): Promise<Row[]> {
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
  const samples = await interleaved(ROUNDS, async (who) => (await commandOf[who]()).split(' ').map(Number))
  const valuesAt = (at: number): Samples<number> => mapSamples(samples, (values) => (values[at] ?? NaN) / 1e6)
  return [
    ratioRow(valuesAt(0), { what, unit: 'ms', bar, sandboxedBar }),
    ratioRow(valuesAt(1), { what: '… CPU until then', unit: 'ms' }),
  ]
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
    timeRuns(world, { ours: commands.node, bare: commands.empty, sandboxed: commands.sandboxed }[who], {
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
export async function timeRuns(
  world: World,
  command: readonly string[],
  { env, count, mayFail = false }: { env: NodeJS.ProcessEnv; count: number; mayFail?: boolean },
): Promise<number> {
  const lines = await outputOf([world.starts, mayFail ? 'try' : 'run', String(count), ...command], env)
  return median(lines.trim().split('\n').map(Number))
}
