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
  /** The name in the marker: `<!-- run: python -->`. */
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
export function block(name: string): Block {
  const found = marked('run: ([\\w-]+)').find((candidate) => candidate.name === name)
  if (found === undefined) throw new Error(`No page has a block of code under <!-- run: ${name} -->`)
  return found
}

function marked(marker: string): Block[] {
  const text = new RegExp(`^<!-- ${marker} -->\\n+\`\`\`\\w+\\n([\\s\\S]*?)\\n\`\`\`$`, 'gm')
  return [...manualText().matchAll(text)].map(([, name = '', code = '']) => ({ name, code }))
}

/** The drop-ins under `<!-- drop-in: NAME -->`, one after the other. */
export function dropIns(): Block[] {
  return marked('drop-in: ([\\w.-]+)')
}

/** The cells of the table under `<!-- table: NAME -->`, without its head. */
export function tableRows(name: string): string[][] {
  const rows = new RegExp(`^<!-- table: ${name} -->\n+((?:\\|.*\\|\n)+)`, 'm').exec(manualText())?.[1]
  if (rows === undefined) throw new Error(`No page has a table under <!-- table: ${name} -->`)
  return rows.trim().split('\n').slice(2).map(cellsOf)
}

/** The term and the meaning of each entry of the list under `<!-- list: NAME -->`. */
export function listEntries(name: string): [term: string, meaning: string][] {
  const lines = new RegExp(`^<!-- list: ${name} -->\\n+\`\`\`text\\n([^\`]+)\`\`\`$`, 'm').exec(
    manualText(),
  )?.[1]
  if (lines === undefined) throw new Error(`No page has a list under <!-- list: ${name} -->`)
  return lines
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
