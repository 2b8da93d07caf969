// Renders lines of a terminal, with their ANSI colours, as an SVG in which they appear one after the other.

export interface TerminalLine {
  /** May contain ANSI colours; no other control characters. */
  readonly text: string
  /** Since the beginning, in ms. */
  readonly atMs: number
}

const COLUMNS = 112
const CHARACTER_WIDTH = 7.8
const LINE_HEIGHT = 18
const PADDING = 14
const CLASSES: Readonly<Record<string, string>> = {
  1: 'bold',
  2: 'dim',
  31: 'red',
  32: 'green',
  33: 'yellow',
}

export function terminalSvg(lines: readonly TerminalLine[]): string {
  const rows = lines.flatMap(({ text, atMs }) => wrap(text).map((row) => ({ row, atMs })))
  const width = Math.ceil(COLUMNS * CHARACTER_WIDTH + 2 * PADDING)
  const height = rows.length * LINE_HEIGHT + 2 * PADDING
  const texts = rows.map(({ row, atMs }, index) => {
    const y = PADDING + (index + 0.75) * LINE_HEIGHT
    return row === ''
      ? ''
      : `<text x="${PADDING}" y="${y}" style="animation-delay:${atMs}ms">${spans(row)}</text>\n`
  })
  return `<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">
<style>
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #d6deeb; white-space: pre;
  animation: appear 1ms both }
@keyframes appear { from { opacity: 0 } }
@media (prefers-reduced-motion: reduce) { text { animation: none } }
.bold { font-weight: bold } .dim { fill: #7f8c98 } .red { fill: #ff6b6b } .green { fill: #7bd88f } .yellow { fill: #ffd866 }
</style>
<rect width="100%" height="100%" rx="8" fill="#1b2330"/>
${texts.join('')}</svg>
`
}

/** The rows of a line as a terminal breaks it. Colours hold to the end of a row. */
function wrap(line: string): string[] {
  const rows: string[] = []
  let rest = line
  for (;;) {
    const row =
      new RegExp(String.raw`^(?:(?:\u001b\[\d+m)*[^\u001b](?:\u001b\[\d+m)*){1,${COLUMNS}}`, 'u').exec(
        rest,
      )?.[0] ?? rest
    rows.push(row)
    if (row.length === rest.length) return rows
    rest = rest.slice(row.length)
  }
}

function spans(row: string): string {
  let isOpen = false
  const svg = row.replaceAll(/\u001b\[(\d+)m|[<>&]/g, (found, code: string | undefined) => {
    if (code === undefined) return { '<': '&lt;', '>': '&gt;' }[found] ?? '&amp;'
    const end = isOpen ? '</tspan>' : ''
    const name = CLASSES[code]
    isOpen = name !== undefined
    return name === undefined ? end : `${end}<tspan class="${name}">`
  })
  return isOpen ? `${svg}</tspan>` : svg
}
