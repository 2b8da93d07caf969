// The price of an idle daemon: its memory after one refresh and after many, and how often it wakes up.
import { once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { startBoth } from './answers.ts'
import type { Row } from './table.ts'
import { end, ownProgram, privateMiB, refresh, start, wakeUps, type World } from './world.ts'

const REFRESHES = 1_000

/** Starts what is measured, and returns what ends it: the daemons do nothing meanwhile, and other rows are measured. */
export async function idleRows(
  world: World,
  progress: (what: string) => void,
): Promise<() => Promise<Row[]>> {
  progress('idle daemons, beside all that follows')
  const options = { service: world.tlsService }
  const one = await startBoth(world, 'once', options)
  const often = await startBoth(world, 'often', options)
  const program = ownProgram('bare-https.mjs', world.tlsService.url, world.caFile)
  const bare = start(program, join(world.directory, 'log'))
  await once(bare.stdout, 'data')
  /** A count of each of the kernel's, for the daemons after one refresh or after many. */
  const eachOf = (daemons: typeof one, count: (pid: number) => number) => ({
    ours: count(daemons.ours.pid),
    unit: count(daemons.unit.pid),
    bare: count(bare.pid ?? 0),
  })
  for (const who of ['ours', 'unit'] as const) {
    await refresh(one[who].path)
    for (let count = 0; count < REFRESHES; count += 1) await refresh(often[who].path)
  }
  const measured = (async () => {
    await sleep(60_000)
    const memory = { afterOne: eachOf(one, privateMiB), afterMany: eachOf(often, privateMiB) }
    const before = eachOf(one, wakeUps)
    await sleep(60_000)
    return { ...memory, before, after: eachOf(one, wakeUps) }
  })()
  return async () => {
    const { afterOne, afterMany, before, after } = await measured
    for (const { process } of [one.ours, one.unit, often.ours, often.unit, { process: bare }])
      await end(process)
    const samplesOf = (valueOf: (who: 'ours' | 'unit' | 'bare') => number): Row['samples'] => ({
      ours: [valueOf('ours')],
      unit: [valueOf('unit')],
      bare: [valueOf('bare')],
    })
    return [
      // The unit's flags return memory after a burst.
      {
        what: 'memory a minute after a refresh',
        unitOfMeasure: 'MiB',
        samples: samplesOf((who) => afterOne[who]),
        unitBar: { atMost: 1.45 },
      },
      { what: '… after 1,000 refreshes', unitOfMeasure: 'MiB', samples: samplesOf((who) => afterMany[who]) },
      {
        what: 'wake-ups when idle, a minute',
        unitOfMeasure: '',
        compared: 'value',
        samples: samplesOf((who) => after[who] - before[who]),
      },
    ]
  }
}
