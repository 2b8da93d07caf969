// Draws screens of a terminal as one SVG, in which each is shown for its time, again and again.
import type { Row } from './terminal.ts'

export interface Frame {
  readonly rows: readonly Row[]
  /** How long it is shown, in ms. */
  readonly forMs: number
}

const CHARACTER_WIDTH = 7.8
const LINE_HEIGHT = 18
const PADDING = 14

/** `label` describes the picture to those who do not see it. */
export function terminalSvg(
  frames: readonly Frame[],
  { columns, label }: { columns: number; label: string },
): string {
  const width = Math.ceil(columns * CHARACTER_WIDTH + 2 * PADDING)
  const height = Math.max(...frames.map(({ rows }) => rows.length)) * LINE_HEIGHT + 2 * PADDING
  const totalMs = frames.reduce((sum, { forMs }) => sum + forMs, 0)
  const percent = (ms: number): string => `${((ms / totalMs) * 100).toFixed(2)}%`
  let fromMs = 0
  const drawn = frames.map(({ rows, forMs }, index) => {
    const untilMs = fromMs + forMs
    const shown = `@keyframes f${index} { 0% { visibility: hidden } ${percent(fromMs)} { visibility: visible } ${
      index === frames.length - 1 ? '' : `${percent(untilMs)} { visibility: hidden }`
    } }`
    fromMs = untilMs
    return {
      style: `${shown}\n#f${index} { animation: f${index} ${totalMs}ms step-end infinite }`,
      group: `<g id="f${index}">\n${rows.map(rowText).join('')}</g>\n`,
    }
  })
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">
<title>${escaped(label)}</title>
<style>
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #d6deeb; white-space: pre }
g { visibility: hidden }
${drawn.map(({ style }) => style).join('\n')}
@media (prefers-reduced-motion: reduce) { g { animation: none !important } g:last-of-type { visibility: visible } }
.bold { font-weight: bold } .dim { fill: #7f8c98 } .red { fill: #ff6b6b } .green { fill: #7bd88f } .yellow { fill: #ffd866 }
</style>
<rect width="100%" height="100%" rx="8" fill="#1b2330"/>
${drawn.map(({ group }) => group).join('')}</svg>
`
}

function rowText(row: Row, index: number): string {
  if (row.length === 0) return ''
  const y = PADDING + (index + 0.75) * LINE_HEIGHT
  const spans = row.map(({ text, look }) =>
    look.length === 0 ? escaped(text) : `<tspan class="${look.join(' ')}">${escaped(text)}</tspan>`,
  )
  return `<text x="${PADDING}" y="${y}" xml:space="preserve">${spans.join('')}</text>\n`
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}
