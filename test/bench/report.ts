// The table for people, and the same for programs.
import { readFileSync, writeFileSync } from 'node:fs'
import { cpus, release, totalmem } from 'node:os'
import { format as formatted, resolveConfig } from 'prettier'
import type { Bar, Row } from './row.ts'
import type { Peer } from './rows/peers.ts'

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

const HEAD = ['row', 'default', 'unit', 'reference', 'default', '±', 'bar', '', 'unit', '±', 'bar', '']
const PEERS_HEAD = ['program', 'start', 'memory', 'a read', '']
const verdictWords: Readonly<Record<Row['verdict'], string>> = {
  met: 'met',
  'within noise': 'not decided for noise',
  missed: '**missed**',
  'no bar': '',
}
/** In the README the report is between these. */
const [BEGIN, END] = ['<!-- bench -->', '<!-- end of bench -->']

/** In Markdown. */
export function renderReport({ rows, peers, machine: on, at, tookSeconds }: Report): string {
  const lines = rows.map((row) => [
    row.what,
    withUnit(row.ours, row.unit),
    withUnit(row.sandboxed, row.unit),
    row.bare === null ? '–' : `${withUnit(row.bare, row.unit)} (${row.against})`,
    result(row, row.result),
    row.compared === 'value' ? '' : format(row.noise),
    bar(row, row.bar),
    verdictWords[row.verdict],
    row.sandboxedResult === null ? '–' : result(row, row.sandboxedResult),
    row.compared === 'value' ? '' : format(row.sandboxedNoise),
    bar(row, row.sandboxedBar),
    verdictWords[row.sandboxedVerdict],
  ])
  const peerLines = peers.map(({ what, startMs, memoryMiB, readMs, remark }) => [
    what,
    withUnit(startMs, 'ms'),
    withUnit(memoryMiB, 'MiB'),
    withUnit(readMs, 'ms'),
    remark,
  ])
  return [
    `${on.cores} × ${on.cpu}, ${on.memoryGiB} GiB, Linux ${on.kernel}, Node ${on.node}, ${at.slice(0, 10)}; the run took ${Math.round(tookSeconds)} s.`,
    '',
    ...table(HEAD, lines),
    '',
    'What people use instead:',
    '',
    ...table(PEERS_HEAD, peerLines),
    '',
  ].join('\n')
}

/** Replaces the report in a page. Throws where the page has not both marks. */
export async function writeInto(file: string, report: Report): Promise<void> {
  const page = readFileSync(file, 'utf8')
  const [from, to] = [page.indexOf(BEGIN), page.indexOf(END)]
  if (from === -1 || to < from) throw new Error(`${file} has no \`${BEGIN}\` and \`${END}\``)
  const text = `${page.slice(0, from)}${BEGIN}\n\n${renderReport(report)}\n${page.slice(to)}`
  writeFileSync(file, await formatted(text, { ...(await resolveConfig(file)), filepath: file }))
}

function table(head: readonly string[], lines: readonly (readonly string[])[]): string[] {
  const line = (cells: readonly string[]): string => `| ${cells.join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...lines.map(line)]
}

function result({ compared }: Row, value: number): string {
  if (Number.isNaN(value)) return '–'
  if (compared === 'ratio') return `${format(value)} ×`
  return compared === 'difference' && value > 0 ? `+${format(value)}` : format(value)
}

function bar({ compared }: Row, wanted: Bar | null): string {
  if (wanted === null) return ''
  const words = 'atLeast' in wanted ? `≥ ${wanted.atLeast}` : `≤ ${wanted.atMost}`
  return compared === 'ratio' ? `${words} ×` : words
}

function withUnit(value: number | null, unit: string): string {
  if (value === null || Number.isNaN(value)) return '–'
  return unit === '' ? format(value) : `${format(value)} ${unit}`
}

/** With as many digits as mean something. */
function format(value: number): string {
  if (Number.isNaN(value)) return '–'
  if (Math.abs(value) >= 1_000) return Math.round(value).toLocaleString('en')
  return value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2).replace(/^0\.00$/, '0')
}
