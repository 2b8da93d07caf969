// A rotation written to files on tmpfs, against a program in C that makes the same system calls.
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { end, lineReader, outputOf, start } from '../programs.ts'
import { contestants, type Contestant, interleaved, mapSamples } from '../rounds.ts'
import { ratioRow, type Row } from '../row.ts'
import { ask, freshToken, preparePlace, startDaemon, type World } from '../world.ts'

/** As many as there can be, so that what comes before and after them does not count. */
const FILES = 64
const ROUNDS = 11

export async function fileRows(world: World, tell: (what: string) => void): Promise<Row[]> {
  tell('a rotation written to files')
  const directories = {} as Record<Contestant, string>
  for (const who of contestants) {
    directories[who] = join(world.directory, `files-${who}`)
    mkdirSync(directories[who], { mode: 0o700 })
  }
  const writers: Record<Contestant, () => Promise<unknown>> = {
    ours: async () => undefined,
    jitless: async () => undefined,
    bare: () => outputOf([world.rotation, 'write', directories.bare, String(FILES), freshToken()]),
  }
  const daemons = []
  for (const who of ['ours', 'jitless'] as const) {
    const tokenFiles = Array.from({ length: FILES }, (_, index) => ({
      path: join(directories[who], `f${index}`),
    }))
    const place = preparePlace(world, `files-of-${who}`, {
      isJitless: who === 'jitless',
      config: { tokenFiles },
    })
    daemons.push(await startDaemon(place))
    writers[who] = () => ask(place.ipcPath, { type: 'refresh.request', data: { id: '1' } })
    await writers[who]()
  }
  await writers.bare()
  const watchers = {} as Record<Contestant, Watcher>
  for (const who of contestants) watchers[who] = watch(world, directories[who])
  const samples = await interleaved(ROUNDS, async (who) => watchers[who].took(writers[who]))
  for (const who of contestants) await watchers[who].leave()
  for (const daemon of daemons) await end(daemon)
  return [
    ratioRow(
      mapSamples(samples, (ns) => ns / 1_000),
      {
        what: 'a rotation written to a file',
        unit: 'µs',
        against: 'the same calls in C',
        bar: { atMost: 1.5 },
      },
    ),
  ]
}

interface Watcher {
  /** How long one file took while this was done, in ns. */
  took(work: () => Promise<unknown>): Promise<number>
  leave(): Promise<void>
}

function watch(world: World, directory: string): Watcher {
  const program = start([world.rotation, 'watch', directory, String(FILES)])
  const nextLine = lineReader(program)
  return {
    async took(work) {
      program.stdin.write('\n')
      await nextLine()
      const working = work()
      const ns = Number(await nextLine())
      await working
      return ns
    },
    leave: () => end(program),
  }
}
