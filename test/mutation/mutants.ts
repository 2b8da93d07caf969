// The mutants of src/ that no run of Stryker has, and a sample of them that a seed decides.
import { createHash } from 'node:crypto'
import { globSync, readFileSync } from 'node:fs'
import { stripTypeScriptTypes } from 'node:module'
import { dirname } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { Instrumenter } from '@stryker-mutator/instrumenter'

/** `npm run mutate` has the first three, which are drawn where they are asked for; the sandbox is no part of the daemon. */
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
  readonly range: Range
}
type Position = { readonly line: number; readonly column: number }
type Range = { readonly start: Position; readonly end: Position }

/**
 * Mutants of every folder in proportion to what it has, at least one of each. Those whose hash with the seed is least:
 * a change of one file leaves the others' part of the sample as it is. They come in the order of the hashes, so that a
 * run that is ended early is a sample, too.
 */
export async function drawMutants(
  count: number,
  seed: number,
  folders: readonly string[],
): Promise<Mutant[]> {
  const mutants = await collectMutants(LEFT_OUT.filter((folder) => !folders.includes(folder)))
  const ranked = mutants
    .map((mutant) => ({ mutant, rank: sha256(`${seed} ${mutant.key}`) }))
    .toSorted((a, b) => (a.rank < b.rank ? -1 : 1))
  const drawn = [...new Set(mutants.map(({ folder }) => folder))].flatMap((folder) => {
    const here = ranked.filter(({ mutant }) => mutant.folder === folder)
    const share = Math.max(1, Math.round((count * here.length) / mutants.length))
    const some: typeof here = []
    for (const candidate of here)
      if (some.length < share && isTypeScript(candidate.mutant.text)) some.push(candidate)
    return some
  })
  return drawn.toSorted((a, b) => (a.rank < b.rank ? -1 : 1)).map(({ mutant }) => mutant)
}

async function collectMutants(leftOut: readonly string[]): Promise<Mutant[]> {
  const files = globSync('src/**/*.ts').filter((file) => !leftOut.some((folder) => file.startsWith(folder)))
  return (await Promise.all(files.toSorted().map(mutantsOf))).flat()
}

async function mutantsOf(file: string): Promise<Mutant[]> {
  const content = readFileSync(file, 'utf8')
  const lineStarts = [0, ...[...content.matchAll(/\n/g)].map(({ index }) => index + 1)]
  const offset = ({ line, column }: Position): number => (lineStarts[line] ?? 0) + column
  const { mutants } = await instrument([{ name: file, content, mutate: true }])
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
      range: location,
    }
  })
}

/**
 * The files with all these mutants in them, and the number of each by its key. The file `path` says which of them is on in a
 * process that starts: `on 12`; or, after `log FILE`, each process writes there the numbers of those that it comes to.
 */
export async function plant(
  mutants: readonly Mutant[],
  path: string,
): Promise<{ texts: Map<string, string>; numbers: Map<string, string> }> {
  const files = [...new Set(mutants.map(({ file }) => file))].map((name) => ({
    name,
    content: readFileSync(name, 'utf8'),
    mutate: mutants.filter(({ file }) => file === name).map(({ range }) => range),
  }))
  const planted = await instrument(files)
  const numbers = new Map<string, string>()
  for (const { key, file, range, replacement } of mutants) {
    const same = planted.mutants.find(
      (mutant) =>
        mutant.fileName === file &&
        mutant.replacement === replacement &&
        isDeepStrictEqual(mutant.location, range),
    )
    if (same !== undefined) numbers.set(key, same.id)
  }
  const texts = planted.files.map(({ name, content }) => [name, withSwitch(content, path)] as const)
  return { texts: new Map(texts), numbers }
}

/** Stryker's switch is an environment variable, which not every process of the tests is given. */
function withSwitch(content: string, path: string): string {
  const start = content.indexOf('function stryNS_9fa48()')
  const last = content.indexOf('function stryMutAct_9fa48(')
  return (
    content.slice(0, start) + SWITCH.replace('PATH', path) + content.slice(content.indexOf('\n}', last) + 2)
  )
}

const SWITCH = `
function stryNS_9fa48() {
  if (globalThis.__planted === undefined) {
    const planted = (globalThis.__planted = { on: '', log: '', seen: new Set() })
    try {
      const [word, value] = process.getBuiltinModule('node:fs').readFileSync('PATH', 'utf8').split(' ')
      planted[word] = value
    } catch {}
  }
  return globalThis.__planted
}
function stryCov_9fa48(...ids) {
  const { log, seen } = stryNS_9fa48()
  if (log === '') return
  for (const id of ids) {
    if (seen.has(id)) continue
    seen.add(id)
    try {
      process.getBuiltinModule('node:fs').appendFileSync(log, id + '\\n')
    } catch {}
  }
}
function stryMutAct_9fa48(id) {
  return stryNS_9fa48().on === id
}
`

function instrument(
  files: Parameters<Instrumenter['instrument']>[0],
): ReturnType<Instrumenter['instrument']> {
  return new Instrumenter(SILENT).instrument(files, { plugins: null, excludedMutations: [], ignorers: [] })
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
