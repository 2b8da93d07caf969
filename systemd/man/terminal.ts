// A terminal without a window: a program runs in it, and its screen can be read, as text and as SVG.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import xterm, { type IBufferCell, type IBufferLine } from '@xterm/headless'

const COLOURS: Readonly<Record<number, string>> = { 1: 'red', 2: 'green', 3: 'yellow' }

export function createScreen({ columns, rows }: { columns: number; rows: number }) {
  const terminal = new xterm.Terminal({ cols: columns, rows, allowProposedApi: true })
  const write = async (data: string | Uint8Array): Promise<void> =>
    new Promise((resolve) => {
      terminal.write(data, resolve)
    })

  function lines(): IBufferLine[] {
    const { active } = terminal.buffer
    return Array.from({ length: rows }, (_, y) => active.getLine(active.viewportY + y)!)
  }
  const text = (): string => lines().map(textOf).join('\n')

  return {
    write,
    /**
     * The lines that are seen, without empty ones at the end: their text in spans of the classes of
     * `lookOf`.
     */
    svgLines(): string[] {
      const seen = lines()
      return seen.slice(0, seen.findLastIndex((line) => textOf(line) !== '') + 1).map(svgOf)
    },
    /** Runs a shell command in the screen until it ends. `keys` are pressed in it. */
    run(command: string) {
      const sized = `stty cols ${columns} rows ${rows}; ${command}`
      const words = ['--quiet', '--flush', '--return', '--command', sized, '/dev/null']
      const env = { ...process.env, TERM: 'xterm-256color' }
      const program = spawn('script', words, { env, stdio: ['pipe', 'pipe', 'inherit'] })
      program.stdout.on('data', (bytes: Uint8Array) => void write(bytes))
      return { press: (keys: string) => program.stdin.write(keys), ended: once(program, 'close') }
    },
    /** Waits for a text on the screen. Throws with what is there instead after a minute. */
    async shows(pattern: RegExp): Promise<RegExpExecArray> {
      for (let tenths = 0; tenths < 600; tenths += 1) {
        const found = pattern.exec(text())
        if (found !== null) return found
        await sleep(100)
      }
      throw new Error(`Waited a minute for ${pattern}:\n${text()}`)
    },
  }
}

function textOf(line: IBufferLine): string {
  return line.translateToString(true)
}

function svgText(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}

function svgOf(line: IBufferLine): string {
  let svg = ''
  let look = ''
  for (let x = 0; x < textOf(line).length; x += 1) {
    const cell = line.getCell(x)!
    const next = lookOf(cell)
    if (next !== look) svg += `${look && '</tspan>'}${next && `<tspan class="${next}">`}`
    look = next
    svg += svgText(cell.getChars() || ' ')
  }
  return `${svg}${look && '</tspan>'}`
}

/** `bold`, `dim` and a colour, as far as the cell has them. */
function lookOf(cell: IBufferCell): string {
  const colour = cell.isFgPalette() ? COLOURS[cell.getFgColor()] : undefined
  return [cell.isBold() && 'bold', cell.isDim() && 'dim', colour].filter(Boolean).join(' ')
}
