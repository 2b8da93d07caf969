// README.md as data: its tables, its marked code blocks, its words.
import { readFileSync } from 'node:fs'

export const README = new URL('../../README.md', import.meta.url).pathname

export interface Block {
  /** What stands in the marker: `<!-- run: python -->`. */
  readonly name: string
  readonly language: string
  readonly code: string
}

export function readmeText(): string {
  return readFileSync(README, 'utf8')
}

/** The block of code under this marker, as it stands. */
export function block(name: string): Block {
  const found = blocks().find((candidate) => candidate.name === name)
  if (found === undefined) throw new Error(`README.md has no block of code under <!-- run: ${name} -->`)
  return found
}

/** All that are marked. */
export function blocks(): Block[] {
  const marked = /^<!-- run: ([\w-]+) -->\n+```(\w+)\n([\s\S]*?)\n```$/gm
  return [...readmeText().matchAll(marked)].map(([, name = '', language = '', code = '']) => ({
    name,
    language,
    code,
  }))
}

/** The cells of the table under `<!-- table: NAME -->`, without its head. */
export function tableRows(name: string): string[][] {
  const rows = new RegExp(`^<!-- table: ${name} -->\n+((?:\\|.*\\|\n)+)`, 'm').exec(readmeText())?.[1]
  if (rows === undefined) throw new Error(`README.md has no table under <!-- table: ${name} -->`)
  return rows.trim().split('\n').slice(2).map(cellsOf)
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
