// `npm run bench`: measures the built program against the least that could do the same, and says whether the bars are met.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { CLI, end, endAll } from './programs.ts'
import { machine, renderReport, writeInto, type Report } from './report.ts'
import { contestants } from './rounds.ts'
import type { Row } from './row.ts'
import { answerRows } from './rows/answers.ts'
import { leaveAlone, loadedRow, refreshedRow } from './rows/idle.ts'
import { peers } from './rows/peers.ts'
import { startRows } from './rows/starts.ts'
import { subscriberRows } from './rows/subscribers.ts'
import { createWorld, startIpcTrio, type World } from './world.ts'

const { values } = parseArgs({ options: { json: { type: 'string' }, write: { type: 'boolean' } } })
const README = fileURLToPath(new URL('../README.md', import.meta.url))

function progress(what: string): void {
  process.stderr.write(`${(performance.now() / 1_000).toFixed(0).padStart(4)} s  ${what} …\n`)
}

async function measure(world: World): Promise<Pick<Report, 'rows' | 'peers'>> {
  progress('idle daemons, beside all that follows')
  const idleRows = await leaveAlone(world)
  const refreshed = await refreshedRow(world, progress)
  const loaded = await loadedRow(world, progress)
  const trio = await startIpcTrio(world, 'main')
  const started = await startRows(world, trio, progress)
  const compared = await peers(world, trio, progress)
  const rested = [...(await refreshed()), ...(await loaded())]
  const answers = await answerRows(world, trio, progress)
  for (const who of contestants) await end(trio[who].process)
  const pushed = await subscriberRows(world, progress)
  progress('idle daemons')
  const [idleMemory, wakes] = (await idleRows()) as [Row, Row]
  const [kept] = started
  const itself = {
    what: 'kyc-tokend, with the flags of its unit',
    startMs: kept?.sandboxed ?? null,
    memoryMiB: idleMemory.sandboxed,
    readMs: null,
    remark: 'until it gives a token that it had kept',
  }
  return {
    rows: [
      ...answers,
      ...pushed,
      ...started.slice(0, -1),
      idleMemory,
      ...rested,
      wakes,
      ...started.slice(-1),
    ],
    peers: [itself, ...compared],
  }
}

function rowsWith({ rows }: Report, wanted: Row['verdict']): string[] {
  return rows.flatMap(({ what, verdict, sandboxedVerdict }) => [
    ...(verdict === wanted ? [`${what}, default`] : []),
    ...(sandboxedVerdict === wanted ? [`${what}, unit`] : []),
  ])
}

async function main(): Promise<void> {
  if (!existsSync(CLI)) throw new Error(`${CLI} is not there: run \`npm run build\` first`)
  const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    version: string
  }
  const fromMs = performance.now()
  const world = await createWorld()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(
      signal,
      () =>
        void endAll()
          .then(() => world.close())
          .then(() => process.exit(1)),
    )
  }
  try {
    const measured = await measure(world)
    const report: Report = {
      machine: machine(),
      version,
      at: new Date().toISOString(),
      tookSeconds: (performance.now() - fromMs) / 1_000,
      ...measured,
    }
    process.stdout.write(`${renderReport(report)}\n`)
    if (values.write === true) await writeInto(README, report)
    if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(report, null, 2)}\n`)
    const missed = rowsWith(report, 'missed')
    for (const what of missed) process.stdout.write(`Missed: ${what}\n`)
    for (const what of rowsWith(report, 'within noise'))
      process.stdout.write(`Not decided for noise: ${what}\n`)
    process.exitCode = missed.length > 0 ? 1 : 0
  } finally {
    await endAll()
    await world.close()
  }
}

await main()
