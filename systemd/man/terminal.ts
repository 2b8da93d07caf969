// A terminal without a window: a program runs in it, and its screen can be read, with bold, dim and colours.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import xterm, { type IBufferCell } from '@xterm/headless'

/** A piece of a row of which all characters look the same. */
export interface Span {
  readonly text: string
  /** `bold`, `dim`, or a colour; plain text has none. */
  readonly look: readonly string[]
}
export type Row = readonly Span[]

const COLOURS: Readonly<Record<number, string>> = { 1: 'red', 2: 'green', 3: 'yellow' }

export type Screen = ReturnType<typeof createScreen>

export function createScreen({ columns, rows }: { columns: number; rows: number }) {
  const terminal = new xterm.Terminal({ cols: columns, rows, allowProposedApi: true })
  const write = async (data: string | Uint8Array): Promise<void> =>
    new Promise((resolve) => {
      terminal.write(data, resolve)
    })

  /** The rows that are seen, without empty ones at the end. */
  function read(): Row[] {
    const buffer = terminal.buffer.active
    const seen = Array.from({ length: rows }, (_, y) => {
      const line = buffer.getLine(buffer.viewportY + y)
      return spansOf(
        Array.from({ length: columns }, (__, x) => line?.getCell(x)).filter((cell) => cell !== undefined),
      )
    })
    return seen.slice(0, seen.findLastIndex((row) => row.length > 0) + 1)
  }

  /** Runs a shell command in the screen until it ends. `keys` are pressed in it. */
  function run(command: string) {
    const sized = `stty cols ${columns} rows ${rows}; ${command}`
    const words = ['--quiet', '--flush', '--return', '--command', sized, '/dev/null']
    const env = { ...process.env, TERM: 'xterm-256color' }
    const program = spawn('script', words, { env, stdio: ['pipe', 'pipe', 'inherit'] })
    program.stdout.on('data', (bytes: Uint8Array) => void write(bytes))
    const ended = once(program, 'close')
    return { press: (keys: string) => program.stdin.write(keys), ended }
  }

  const text = (): string => read().map(textOf).join('\n')
  return {
    write,
    read,
    text,
    run,
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

export function textOf(row: Row): string {
  return row.map((span) => span.text).join('')
}

function spansOf(cells: readonly IBufferCell[]): Row {
  const last = cells.findLastIndex((cell) => cell.getChars().trim() !== '')
  const spans: { text: string; look: readonly string[] }[] = []
  for (const cell of cells.slice(0, last + 1)) {
    const look = lookOf(cell)
    const before = spans.at(-1)
    const text = cell.getChars() || ' '
    if (before !== undefined && before.look.join() === look.join()) before.text += text
    else spans.push({ text, look })
  }
  return spans
}

function lookOf(cell: IBufferCell): string[] {
  const colour = cell.isFgPalette() ? COLOURS[cell.getFgColor()] : undefined
  return [
    ...(cell.isBold() ? ['bold'] : []),
    ...(cell.isDim() ? ['dim'] : []),
    ...(colour === undefined ? [] : [colour]),
  ]
}
