// Records the picture of README.md, recording.svg: a person's first minute with the program, from real
// screens. Each is shown for its time, again and again.
import { writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import program from '../../package.json' with { type: 'json' }
import { createScreen } from './terminal.ts'

const COLUMNS = 100
const CHARACTER_WIDTH = 7.8
const LINE_HEIGHT = 18
const PADDING = 14

const first = createScreen({ columns: COLUMNS, rows: 24 })
const other = createScreen({ columns: COLUMNS, rows: 22 })
const frames: { readonly lines: readonly string[]; readonly forMs: number }[] = []

/** Adds what both terminals show now. */
function shoot(forMs: number): void {
  const title = `<tspan class="dim">${'── another terminal '.padEnd(COLUMNS, '─')}</tspan>`
  const lines = [...first.svgLines(), '', title, ...other.svgLines()]
  frames.push({ lines: lines.map((line) => line.replaceAll(hostname(), 'host-a')), forMs })
}

/** Types and runs a command in the other terminal, and adds what comes. */
async function inOther(command: string): Promise<void> {
  await other.write(`\u001b[2J\u001b[H\u001b[1m$ ${command}\u001b[0m\r\n`)
  shoot(1_500)
  await other.run(command).ended
  shoot(3_500)
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
writeFileSync(new URL('recording.svg', import.meta.url), picture())

function picture(): string {
  const story = 'npm start, a token in another terminal, an outage, status, the recovery'
  const width = Math.ceil(COLUMNS * CHARACTER_WIDTH + 2 * PADDING)
  const height = Math.max(...frames.map(({ lines }) => lines.length)) * LINE_HEIGHT + 2 * PADDING
  const totalMs = frames.reduce((sum, { forMs }) => sum + forMs, 0)
  const percent = (ms: number): string => `${((ms / totalMs) * 100).toFixed(2)}%`
  let fromMs = 0
  const styles = frames.map(({ forMs }, index) => {
    const begin = percent(fromMs)
    fromMs += forMs
    const end = fromMs === totalMs ? '' : `${percent(fromMs)} { visibility: hidden }`
    return `@keyframes f${index} { 0% { visibility: hidden } ${begin} { visibility: visible } ${end} }
#f${index} { animation: f${index} ${totalMs}ms step-end infinite }`
  })
  const groups = frames.map(({ lines }, index) => `<g id="f${index}">\n${lines.map(row).join('')}</g>`)
  const size = `viewBox="0 0 ${width} ${height}" width="${width}" height="${height}"`
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} role="img">
<title>kyc-tokend ${program.version}: ${story}</title>
<style>
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #d6deeb; white-space: pre }
g { visibility: hidden }
${styles.join('\n')}
@media (prefers-reduced-motion: reduce) {
  g { animation: none !important }
  g:last-of-type { visibility: visible }
}
.bold { font-weight: bold } .dim { fill: #7f8c98 }
.red { fill: #ff6b6b } .green { fill: #7bd88f } .yellow { fill: #ffd866 }
</style>
<rect width="100%" height="100%" rx="8" fill="#1b2330"/>
${groups.join('\n')}
</svg>
`
}

function row(line: string, index: number): string {
  if (line === '') return ''
  const y = PADDING + (index + 0.75) * LINE_HEIGHT
  return `<text x="${PADDING}" y="${y}" xml:space="preserve">${line}</text>\n`
}
