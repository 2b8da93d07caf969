// The manual as data: README.md and the pages in systemd/man, src and test, with their tables and marked blocks of code.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

export const PROJECT = new URL('../..', import.meta.url).pathname

/** The files that the package has as examples. */
export const EXAMPLES = join(PROJECT, 'systemd/examples')

interface Page {
  /** Relative to the project. */
  readonly path: string
  readonly text: string
}
interface Block {
  /** The name in the marker: `<!-- drop-in: proxy.conf -->`. */
  readonly name: string
  readonly code: string
}

export function pages(): Page[] {
  const manual = readdirSync(join(PROJECT, 'systemd/man')).filter((file) => file.endsWith('.md'))
  const paths = [
    'README.md',
    'src/README.md',
    'src/RELEASE.md',
    'test/README.md',
    'SECURITY.md',
    'systemd/examples/services/README.md',
    ...manual.map((file) => `systemd/man/${file}`),
  ]
  return paths.map((path) => ({ path, text: readFileSync(join(PROJECT, path), 'utf8') }))
}

/** All pages in one text. */
export function manualText(): string {
  return pages()
    .map(({ text }) => text)
    .join('\n')
}

/** The block of code with this marker, as written. */
export function block(name: string): Pick<Block, 'code'> {
  return { code: under(`run: ${name}`, CODE) }
}

/** The drop-ins under `<!-- drop-in: NAME -->`, one after the other. */
export function dropIns(): Block[] {
  const all = new RegExp(`^<!-- drop-in: ([\\w.-]+) -->\\n+${CODE}`, 'gm')
  return [...manualText().matchAll(all)].map(([, name = '', code = '']) => ({ name, code }))
}

const CODE = '```\\w+\\n([\\s\\S]*?)\\n```$'

/** The first group of the pattern, where it stands under this marker. */
function under(marker: string, pattern: string): string {
  const text = new RegExp(`^<!-- ${marker} -->\\n+${pattern}`, 'm').exec(manualText())?.[1]
  if (text === undefined) throw new Error(`No page has what belongs under <!-- ${marker} -->`)
  return text
}

/** The cells of the table under `<!-- table: NAME -->`, without its head. */
export function tableRows(name: string): string[][] {
  const rows = under(`table: ${name}`, '((?:\\|.*\\|\\n)+)')
  return rows.trim().split('\n').slice(2).map(cellsOf)
}

/** The term and the meaning of each entry of the list under `<!-- list: NAME -->`. */
export function listEntries(name: string): [term: string, meaning: string][] {
  return under(`list: ${name}`, CODE)
    .replaceAll(/\n +/g, ' ')
    .trim()
    .split('\n')
    .map((line) => {
      const [term = '', meaning = ''] = line.split(/: (.*)/)
      return [term, meaning]
    })
}

/** A cell that is one piece of code, without its backticks. */
export function bare(cell: string | undefined): string {
  return (cell ?? '').replaceAll('`', '')
}

function cellsOf(line: string): string[] {
  return line
    .replace(/^\|/, '')
    .replace(/\|$/, '')
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll(String.raw`\|`, '|'))
}
