// The price of a start until the first answer: with a token kept from before, and without.
import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { interleaved, mapSamples, type Bar, type Contestant, type Row } from './table.ts'
import {
  end,
  freshToken,
  outputOf,
  ownProgram,
  prepareHome,
  startDaemon,
  type Home,
  type Program,
  type World,
} from './world.ts'

const ROUNDS = 15

export async function startRows(world: World, progress: (what: string) => void): Promise<Row[]> {
  const ours = prepareHome(world, 'start')
  const unit = prepareHome(world, 'start-unit', { isUnit: true })
  for (const home of [ours, unit]) await end((await startDaemon(world, home)).process)
  progress('starts')
  // One and a half of what 1.1.0 needed, which was 2.34 and 3.32 times as much as the bare server with this bench.
  const kept = await rowsOf(world, { ours, unit }, () => undefined, {
    what: 'start, token kept',
    bar: { atMost: 3.51 },
    unitBar: { atMost: 4.98 },
  })
  const cold = await rowsOf(world, { ours, unit }, forget, { what: 'start with a fetch' })
  return [...kept, ...cold]
}

function forget({ runtime, state }: Home): void {
  for (const directory of [runtime, state])
    for (const name of readdirSync(directory)) rmSync(join(directory, name))
}

async function rowsOf(
  world: World,
  homes: Record<'ours' | 'unit', Home>,
  prepare: (home: Home) => void,
  { what, ...bars }: { what: string; bar?: Bar; unitBar?: Bar },
): Promise<Row[]> {
  const barePath = join(world.directory, 'start.sock')
  const run = async (who: Contestant): Promise<number[]> => {
    const home = who === 'ours' || who === 'unit' ? homes[who] : null
    if (home === null) rmSync(barePath, { force: true })
    else prepare(home)
    const path = home?.ipcPath ?? barePath
    const { command, env }: Program = home ?? ownProgram('bare-ipc.mjs', path, freshToken())
    const printed = await outputOf({ command: [world.starts, path, ...command], env })
    return printed.split(' ').map((ns) => Number(ns) / 1e6)
  }
  const samples = await interleaved(ROUNDS, ['ours', 'unit', 'bare'], run)
  return [
    { what, unitOfMeasure: 'ms', samples: mapSamples(samples, ([took = NaN]) => took) },
    {
      what: '… CPU until then',
      unitOfMeasure: 'ms',
      samples: mapSamples(samples, ([, cpu = NaN]) => cpu),
      ...bars,
    },
  ]
}
