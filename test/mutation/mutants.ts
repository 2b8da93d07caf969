// The mutants of src/ that no run of Stryker has, and a sample of them that a seed decides.
import { createHash } from 'node:crypto'
import { globSync, readFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
import { dirname } from 'node:path'
import { Instrumenter } from '@stryker-mutator/instrumenter'

/** `npm run mutate` has the first three; the sandbox is no part of the daemon. */
const LEFT_OUT = ['src/token', 'src/source', 'src/storage', 'src/sandbox']
/** Their replacement can bind more loosely than the original. */
const OPERATORS = new Set(['LogicalOperator', 'EqualityOperator', 'ArithmeticOperator'])

export type Mutant = {
  readonly key: string
  readonly folder: string
  readonly file: string
  readonly line: number
  readonly original: string
  readonly replacement: string
  /** The whole file with the replacement in it. */
  readonly text: string
}

/**
 * Mutants of every folder in proportion to what it has, at least one of each. Those whose hash with the seed is least:
 * a change of one file leaves the others' part of the sample as it is. They come in the order of the hashes, so that a
 * run that is ended early is a sample, too.
 */
export async function drawMutants(count: number, seed: number): Promise<Mutant[]> {
  const mutants = await collectMutants()
  const ranked = mutants
    .map((mutant) => ({ mutant, rank: sha256(`${seed} ${mutant.key}`) }))
    .toSorted((a, b) => (a.rank < b.rank ? -1 : 1))
  const folders = [...new Set(mutants.map(({ folder }) => folder))]
  const drawn = folders.flatMap((folder) => {
    const here = ranked.filter(({ mutant }) => mutant.folder === folder)
    const share = Math.max(1, Math.round((count * here.length) / mutants.length))
    const some: typeof here = []
    for (const candidate of here)
      if (some.length < share && isTypeScript(candidate.mutant.text)) some.push(candidate)
    return some
  })
  return drawn.toSorted((a, b) => (a.rank < b.rank ? -1 : 1)).map(({ mutant }) => mutant)
}

async function collectMutants(): Promise<Mutant[]> {
  const files = globSync('src/**/*.ts').filter((file) => !LEFT_OUT.some((folder) => file.startsWith(folder)))
  return (await Promise.all(files.toSorted().map(mutantsOf))).flat()
}

async function mutantsOf(file: string): Promise<Mutant[]> {
  const content = readFileSync(file, 'utf8')
  const lineStarts = [0, ...[...content.matchAll(/\n/g)].map(({ index }) => index + 1)]
  const offset = ({ line, column }: { line: number; column: number }): number =>
    (lineStarts[line] ?? 0) + column
  const instrumenter = new Instrumenter(SILENT)
  const options = { plugins: null, excludedMutations: [], ignorers: [] }
  const { mutants } = await instrumenter.instrument([{ name: file, content, mutate: true }], options)
  const seen = new Map<string, number>()
  return mutants.map(({ location, mutatorName, replacement }) => {
    const [from, to] = [offset(location.start), offset(location.end)]
    const original = content.slice(from, to)
    const written = OPERATORS.has(mutatorName) ? `(${replacement})` : replacement
    const name = `${file} ${mutatorName} ${original} ${replacement}`
    const nth = (seen.get(name) ?? 0) + 1
    seen.set(name, nth)
    return {
      key: sha256(`${name} ${nth}`),
      folder: dirname(file).split('/').slice(0, 2).join('/'),
      file,
      line: location.start.line + 1,
      original,
      replacement,
      text: content.slice(0, from) + written + content.slice(to),
    }
  })
}

function isTypeScript(text: string): boolean {
  try {
    stripTypeScriptTypes(text)
    return true
  } catch {
    return false
  }
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}

const no = (): boolean => false
const ignore = (): void => {}
const SILENT = {
  isTraceEnabled: no,
  isDebugEnabled: no,
  isInfoEnabled: no,
  isWarnEnabled: no,
  isErrorEnabled: no,
  isFatalEnabled: no,
  trace: ignore,
  debug: ignore,
  info: ignore,
  warn: ignore,
  error: ignore,
  fatal: ignore,
}
