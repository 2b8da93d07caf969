// `npm run bench`: measures the built program against the least that could do the same, and ends with 1 if a bar is missed.
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { format, resolveConfig } from 'prettier'
import { answerRows } from './answers.ts'
import { idleRows } from './idle.ts'
import { startRows } from './starts.ts'
import { missed, renderTable, type Row } from './table.ts'
import { CLI, createWorld, type World } from './world.ts'

/** In test/README.md the table is between these. */
const [BEGIN, END] = ['<!-- bench -->', '<!-- end of bench -->']

function progress(what: string): void {
  process.stderr.write(`${(performance.now() / 1_000).toFixed(0).padStart(4)} s  ${what} …\n`)
}

async function measure(world: World): Promise<Row[]> {
  const idle = await idleRows(world, progress)
  const starts = await startRows(world, progress)
  const answers = await answerRows(world, progress)
  progress('idle daemons')
  return [...answers, ...starts, ...(await idle())]
}

async function writeInto(file: string, table: string): Promise<void> {
  const page = readFileSync(file, 'utf8')
  const text = `${page.slice(0, page.indexOf(BEGIN))}${BEGIN}\n\n${table}\n${page.slice(page.indexOf(END))}`
  writeFileSync(file, await format(text, { ...(await resolveConfig(file)), filepath: file }))
}

if (!existsSync(CLI)) throw new Error(`${CLI} does not exist: run \`npm run build\` first`)
const world = await createWorld()
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => void world.close().then(() => process.exit(1)))
try {
  const rows = await measure(world)
  const table = renderTable(rows)
  process.stdout.write(table)
  if (process.argv.includes('--write')) await writeInto(join(import.meta.dirname, '../README.md'), table)
  for (const what of missed(rows)) {
    process.stdout.write(`Missed: ${what}\n`)
    process.exitCode = 1
  }
} finally {
  await world.close()
}
