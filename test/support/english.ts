// Finds English that the project does not use. `node test/support/english.ts [PATH …]` prints it.
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'

const PROJECT = new URL('../..', import.meta.url).pathname
/** This file quotes the words. */
const EXEMPT = 'test/support/english.ts'

const RELATIVE_START = /^(?:What|Who|Whom|Whose|Where|Whoever|Whatever|Wherever|Whichever|How|Whether)\b/

/** Metaphors that were once names, and words for which the field has others. A hyphen joins: `file-mended` is one word. */
const WORDS = [
  'guests?|doors?|rooms?|houses?|census|holdings|standing|places?|latch|thrift|thrifty|narrator|takers?',
  'judges?|judged|judging|judgements?|anew|mend|mends|mended|mending|tell|tells|told|telling|stands',
  'somebody|nobody|whoever|behind our back|of ours',
]
  .join('|')
  .replaceAll(/(?<=^|\|)[a-z]/g, (letter) => `[${letter}${letter.toUpperCase()}]`)
const WORD = new RegExp(`(?<![\\w-])(?:${WORDS})(?![\\w-])`, 'g')
/** A quoted word is a name, such as the user `nobody`; so is an option of cosmiconfig. */
const NAME = /(['"`])\w+\1|\bsearchPlaces\b|\bignoreEmptySearchPlaces\b/g

export interface Finding {
  readonly path: string
  readonly line: number
  readonly problem: string
}

/** Every text file below these paths, relative to the project. */
export function textFiles(paths: readonly string[]): string[] {
  return paths
    .flatMap((path) =>
      statSync(join(PROJECT, path)).isFile()
        ? [path]
        : readdirSync(join(PROJECT, path), { recursive: true, withFileTypes: true })
            .filter((entry) => entry.isFile() && !entry.name.endsWith('.svg'))
            .map((entry) => join(entry.parentPath, entry.name).slice(PROJECT.length)),
    )
    .filter((path) => path !== EXEMPT)
    .toSorted()
}

export function findingsIn(path: string): Finding[] {
  const lines = readFileSync(join(PROJECT, path), 'utf8').split('\n')
  return lines.flatMap((text, index) => {
    const start = path.endsWith('.md') ? undefined : commentStart(text, lines[index - 1] ?? '')
    const words =
      text
        .replaceAll(NAME, '')
        .replaceAll(/(?<=[a-z])(?=[A-Z])/g, ' ')
        .match(WORD) ?? []
    return [
      ...(start !== undefined && RELATIVE_START.test(start) ? [`a comment begins with "${start}"`] : []),
      ...words.map((word) => `"${word}" is not used`),
    ].map((problem) => ({ path, line: index + 1, problem }))
  })
}

/** The first words of a comment that begins on this line. */
function commentStart(line: string, previous: string): string | undefined {
  const [, code = '', marker, text] =
    /^(.*?)(\/\/|\/\*\*?|(?<=^\s*)\*|(?<=^\s*|\s)#)\s+(\S.*)$/.exec(line) ?? []
  if (marker === undefined) return undefined
  const goesOn =
    code.trim() === '' &&
    (marker === '*' ? !/^\s*\/\*\*?$/.test(previous) : previous.trimStart().startsWith(`${marker} `))
  return goesOn ? undefined : text?.split(' ').slice(0, 4).join(' ')
}

export const CHECKED = ['src', 'test', 'systemd', 'README.md', 'CHANGELOG.md'] as const

if (import.meta.main) {
  const named = process.argv.slice(2)
  const findings = textFiles(named.length > 0 ? named : CHECKED).flatMap(findingsIn)
  const lines = findings.map(({ path, line, problem }) => `${path}:${line}: ${problem}`)
  process.stdout.write(lines.map((line) => `${line}\n`).join(''))
}
