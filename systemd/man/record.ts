// Records the picture of README.md, recording.svg: a person's first minute with the program, from real screens.
import { writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import program from '../../package.json' with { type: 'json' }
import { terminalSvg, type Frame } from './terminal-svg.ts'
import { createScreen, type Row } from './terminal.ts'

const COLUMNS = 100
const OUTPUT = new URL('recording.svg', import.meta.url)

const first = createScreen({ columns: COLUMNS, rows: 24 })
const other = createScreen({ columns: COLUMNS, rows: 22 })
const frames: Frame[] = []

/** Adds what both terminals show now. */
function shoot(forMs: number): void {
  const title = (text: string): Row => [{ text: `── ${text} `.padEnd(COLUMNS, '─'), look: ['dim'] }]
  const rows = [...first.read(), [], title('another terminal'), ...other.read()]
  frames.push({ rows: rows.map(withoutHostName), forMs })
}

/** Types and runs a command in the other terminal, and adds what comes. */
async function inOther(command: string): Promise<void> {
  await other.write(`\u001b[2J\u001b[H\u001b[1m$ ${command}\u001b[0m\r\n`)
  shoot(1_500)
  await other.run(command).ended
  shoot(3_500)
}

function withoutHostName(row: Row): Row {
  return row.map((span) => ({ ...span, text: span.text.replaceAll(hostname(), 'host-a') }))
}

await first.write(`\u001b[1m$ npm start\u001b[0m\r\n`)
shoot(1_500)
const demo = first.run('npm start --silent')
const [, command = ''] = await first.shows(/(\/\S+\/kyc-tokend) token/)
await first.shows(/● ready/)
shoot(3_000)
await inOther(`${command} token`)
demo.press('o')
await first.shows(/● degraded/)
shoot(2_500)
await inOther(`${command} status`)
demo.press('k')
await first.shows(/● ready/)
shoot(4_000)
demo.press('q')
await demo.ended
const label = `kyc-tokend ${program.version}: npm start, a token in another terminal, an outage, status, the recovery`
writeFileSync(OUTPUT, terminalSvg(frames, { columns: COLUMNS, label }))
