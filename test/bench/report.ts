// The table for people, and the same for programs.
import { cpus, release, totalmem } from 'node:os'
import type { Bar, Row } from './row.ts'
import type { Peer } from './rows/starts.ts'

export interface Report {
  readonly machine: {
    readonly cpu: string
    readonly cores: number
    readonly memoryGiB: number
    readonly kernel: string
    readonly node: string
  }
  /** Of the built program. */
  readonly version: string
  readonly at: string
  readonly tookSeconds: number
  readonly rows: readonly Row[]
  readonly peers: readonly Peer[]
}

export function machine(): Report['machine'] {
  return {
    cpu: cpus()[0]?.model.trim() ?? 'unknown',
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    kernel: release(),
    node: process.version,
  }
}

const HEAD = ['', 'default', 'unit', 'against', '', 'default', '±', 'bar', '', 'unit', 'bar', '']
const verdictWords: Readonly<Record<Row['verdict'], string>> = {
  met: 'met',
  'within noise': 'met, within the noise',
  missed: 'MISSED',
  'no bar': '',
}

export function renderTable({ rows, peers, machine: on, tookSeconds }: Report): string {
  const lines = rows.map((row) => [
    row.what,
    withUnit(row.ours, row.unit),
    row.sandboxed === null ? '' : withUnit(row.sandboxed, row.unit),
    row.bare === null ? '' : withUnit(row.bare, row.unit),
    row.bare === null ? '' : row.against,
    result(row, row.result),
    row.compared === 'value' ? '' : format(row.noise),
    bar(row, row.bar),
    verdictWords[row.verdict],
    row.sandboxedResult === null ? '' : result(row, row.sandboxedResult),
    bar(row, row.sandboxedBar),
    verdictWords[row.sandboxedVerdict],
  ])
  const peerLines = peers.map(({ what, ms, remark }) => [
    what,
    ms === null ? '–' : withUnit(ms, 'ms'),
    remark,
  ])
  return [
    `${on.cores} × ${on.cpu}, ${on.memoryGiB} GiB, Linux ${on.kernel}, Node ${on.node}; ${Math.round(tookSeconds)} s`,
    '',
    ...columns([HEAD, ...lines]),
    '',
    'What people use instead, until the token is printed:',
    '',
    ...columns(peerLines),
    '',
  ].join('\n')
}

function result({ compared }: Row, value: number): string {
  if (compared === 'ratio') return `${format(value)} ×`
  return compared === 'difference' && value > 0 ? `+${format(value)}` : format(value)
}

function bar({ compared }: Row, wanted: Bar | null): string {
  if (wanted === null) return ''
  const words = 'atLeast' in wanted ? `≥ ${wanted.atLeast}` : `≤ ${wanted.atMost}`
  return compared === 'ratio' ? `${words} ×` : words
}

function withUnit(value: number, unit: string): string {
  return unit === '' ? format(value) : `${format(value)} ${unit}`
}

/** With as many digits as mean something. */
function format(value: number): string {
  if (Number.isNaN(value)) return '–'
  if (Math.abs(value) >= 1_000) return Math.round(value).toLocaleString('en')
  return value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2).replace(/^0\.00$/, '0')
}

/** Lines in columns: the first and words to the left, numbers to the right. */
function columns(lines: readonly (readonly string[])[]): string[] {
  const widths = (lines[0] ?? []).map((_, at) => Math.max(...lines.map((cells) => cells[at]?.length ?? 0)))
  return lines.map((cells) =>
    cells
      .map((cell, at) =>
        /^[+-–]?\d/.test(cell) ? cell.padStart(widths[at] ?? 0) : cell.padEnd(widths[at] ?? 0),
      )
      .join('  ')
      .trimEnd(),
  )
}
