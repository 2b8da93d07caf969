// `npm run mutate:sample`: planted faults, a sample that a seed decides, against the tests that come to them.
//
// All mutants are in one copy of the project, which is built once; a file switches one of them on. Each test file is run once
// without any, which shows the mutants that it comes to in any of its processes, its duration, and if it passes at all.
import { fork, execFileSync, type ChildProcess } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  cpSync,
  existsSync,
  globSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { drawMutants, plant, type Mutant } from './mutants.ts'
import type { Answer } from './session.ts'

const USAGE = `Usage: npm run mutate:sample -- [--count 300] [--seed 1] [--folder src/config]... [--limit 240] [--retry]
                               [--results ${join(tmpdir(), 'kyc-tokend-mutants.jsonl')}]
The tests of a mutant may take 240 s. What the results file has is not run again; with --retry those that survived or timed out are.`

/** They are run by vitest itself, before the tests: the switch does not reach them. */
const BUILD = 'src/build'
const BUILD_TESTS = ['test/build', 'test/client/package.test.ts', 'test/cli.test.ts', 'test/daemon.test.ts']

type Outcome = 'killed' | 'survived' | 'timed out'
type Result = { readonly key: string; readonly outcome: Outcome; readonly by?: string }
/** Of a test file without a mutant. */
type Run = {
  readonly test: string
  readonly digest: string
  readonly seconds: number
  readonly failed: string | undefined
  readonly met: readonly string[]
}

const { values } = parseArgs({
  options: {
    count: { type: 'string', default: '300' },
    seed: { type: 'string', default: '1' },
    folder: { type: 'string', multiple: true },
    results: { type: 'string', default: join(tmpdir(), 'kyc-tokend-mutants.jsonl') },
    limit: { type: 'string', default: '240' },
    retry: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})

async function main(): Promise<void> {
  if (values.help) return print(USAGE)
  const folders = values.folder ?? []
  const sample = await drawMutants(Number(values.count), Number(values.seed), folders)
  const mutants = sample.filter(({ folder }) => folders.length === 0 || folders.includes(folder))
  const tree = copyTree()
  const session = new Session(tree)
  process.once('SIGINT', () => process.exit(130))
  process.once('SIGTERM', () => process.exit(143))
  process.once('exit', () => {
    session.kill()
    rmSync(tree, { recursive: true, force: true })
  })
  const results = new Map(readLines<Result>(values.results).map((result) => [result.key, result]))
  const isDue = ({ key }: Mutant): boolean =>
    !results.has(key) || (values.retry && results.get(key)?.outcome !== 'killed')
  const due = mutants.filter(isDue)
  const { texts, numbers } = await plant(
    sample.filter(({ folder }) => folder !== BUILD),
    session.switch,
  )
  for (const [file, text] of texts) writeFileSync(join(tree, file), text)
  const sources = [...texts.values()].join('')
  const runs = await runUnchanged(session, tree, sources)
  for (const [index, mutant] of due.entries()) {
    const outcome =
      mutant.folder === BUILD
        ? await tryBuild(session, tree, mutant, runs)
        : await tryTests(session, testsFor(mutant, runs, numbers.get(mutant.key)), numbers.get(mutant.key))
    const result = { key: mutant.key, ...outcome }
    results.set(result.key, result)
    appendFileSync(values.results, `${JSON.stringify(result)}\n`)
    print(`${index + 1}/${due.length} ${result.outcome}: ${describe(mutant)} ${result.by ?? ''}`)
  }
  printTable(mutants, results)
  session.kill()
}

function readLines<Line>(path: string): Line[] {
  if (!existsSync(path)) return []
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n')
  return lines.map((line) => JSON.parse(line) as Line)
}

/** The files that git tracks, and the modules as hard links: on the same file system (`TMPDIR`). */
function copyTree(): string {
  const tree = mkdtempSync(join(tmpdir(), 'kyc-tokend-mutant-'))
  // Tests act as other users, too.
  chmodSync(tree, 0o755)
  const files = execFileSync('git', ['ls-files', '-z'], { encoding: 'utf8' }).split('\0').filter(existsSync)
  for (const file of files) cpSync(file, join(tree, file))
  execFileSync('cp', ['-al', 'node_modules', tree])
  // Those that are written to.
  for (const cache of ['.vite', '.vite-temp', '.vitest-cache', '.cache'])
    rmSync(join(tree, 'node_modules', cache), { recursive: true, force: true })
  return tree
}

/** A process that runs test files, one at a time; a new one after it had to be killed. */
class Session {
  readonly switch: string
  readonly #tree: string
  #child: ChildProcess | undefined

  constructor(tree: string) {
    this.#tree = tree
    this.switch = join(tree, 'planted')
  }

  /** `timed out` after so many seconds. */
  async run(test: string, seconds: number, planted: string): Promise<Answer | 'timed out'> {
    writeFileSync(this.switch, planted)
    // A group of its own, so that what it starts ends with it.
    this.#child ??= fork(join('test', 'mutation', 'session.ts'), {
      cwd: this.#tree,
      detached: true,
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    })
    const child = this.#child
    const stop = new AbortController()
    const timer = setTimeout(() => stop.abort(), seconds * 1_000)
    const first = (event: string): Promise<unknown[]> => once(child, event, { signal: stop.signal })
    child.send(test)
    try {
      const answer = first('message') as Promise<[Answer]>
      const ended = first('exit').then(() => [{ failed: 'vitest ended' }] as const)
      return (await Promise.race([answer, ended]))[0]
    } catch {
      this.kill()
      return 'timed out'
    } finally {
      clearTimeout(timer)
      stop.abort()
      if (child.exitCode !== null || child.signalCode !== null) this.kill()
    }
  }

  kill(): void {
    try {
      if (this.#child?.pid !== undefined) process.kill(-this.#child.pid, 'SIGKILL')
    } catch {
      // It has ended.
    }
    this.#child = undefined
  }
}

/** The result for a test file is kept beside the results, until it or a source is another. */
async function runUnchanged(session: Session, tree: string, sources: string): Promise<Run[]> {
  const path = `${values.results}.tests`
  const known = new Map(readLines<Run>(path).map((run) => [`${run.test} ${run.digest}`, run]))
  const tests = globSync('test/**/*.test.ts').filter(
    (test) => !/\.system\.|^test.(systemd|simulation)/.test(test),
  )
  const runs: Run[] = []
  const log = join(tree, 'met')
  for (const test of tests) {
    const digest = createHash('sha256')
      .update(sources.replaceAll(tree, ''))
      .update(readFileSync(test))
      .digest('hex')
    const kept = known.get(`${test} ${digest}`)
    if (kept !== undefined) {
      runs.push(kept)
      continue
    }
    writeFileSync(log, '')
    chmodSync(log, 0o666)
    let failed: string | undefined = ''
    let seconds = 0
    // Once more if it fails: it may have been the machine, or that errno is another after a write to the log.
    for (let attempt = 0; attempt < 2 && failed !== undefined; attempt += 1) {
      const started = performance.now()
      const answer = await session.run(test, Number(values.limit), attempt === 0 ? `log ${log}` : '')
      failed = answer === 'timed out' ? answer : answer.failed
      seconds = (performance.now() - started) / 1_000
    }
    const met = [...new Set(readFileSync(log, 'utf8').split('\n'))].filter((id) => id !== '')
    const run = { test, digest, seconds, failed, met }
    appendFileSync(path, `${JSON.stringify(run)}\n`)
    runs.push(run)
    print(
      `${test}: ${run.seconds.toFixed(1)} s, ${met.length} mutants${failed === undefined ? '' : `, left out: ${failed}`}`,
    )
  }
  return runs.filter(({ failed }) => failed === undefined)
}

/** Those that import the file first, then those of its folder, and the quick ones before the slow. */
function testsFor({ file, folder }: Mutant, runs: readonly Run[], number = ''): Run[] {
  const isNear = ({ test }: Run): boolean => readFileSync(test, 'utf8').includes(`/${file}'`)
  const isOfFolder = ({ test }: Run): boolean => test.startsWith(`${folder.replace('src', 'test')}/`)
  const rank = (run: Run): number => (isNear(run) ? 0 : isOfFolder(run) ? 1 : 2)
  return runs
    .filter(({ met }) => met.includes(number))
    .toSorted((a, b) => rank(a) - rank(b) || a.seconds - b.seconds)
}

/** A failure counts if it comes twice, with the mutant. */
async function tryTests(session: Session, runs: readonly Run[], number = ''): Promise<Omit<Result, 'key'>> {
  let left = Number(values.limit)
  for (const { test, seconds } of runs) {
    if (left < seconds) continue
    left -= seconds
    const answers: (Answer | 'timed out')[] = []
    do answers.push(await session.run(test, 30 + 5 * seconds, `on ${number}`))
    while (answers.length < 2 && (answers[0] === 'timed out' || answers[0]?.failed !== undefined))
    const [first, second] = answers
    if (first === 'timed out' && second === 'timed out') return { outcome: 'timed out', by: `(${test})` }
    if (typeof second === 'object' && second.failed !== undefined)
      return { outcome: 'killed', by: `(${test}: ${second.failed})` }
  }
  return { outcome: 'survived', by: `(${runs.length} test files come to it)` }
}

async function tryBuild(
  session: Session,
  tree: string,
  { file, text }: Mutant,
  runs: readonly Run[],
): Promise<Omit<Result, 'key'>> {
  session.kill()
  const unchanged = readFileSync(join(tree, file))
  writeFileSync(join(tree, file), text)
  try {
    for (const { test } of runs.filter((run) => BUILD_TESTS.some((path) => run.test.startsWith(path)))) {
      const answer = await session.run(test, Number(values.limit), '')
      if (answer === 'timed out') return { outcome: answer }
      if (answer.failed !== undefined) return { outcome: 'killed', by: `(${test}: ${answer.failed})` }
    }
    return { outcome: 'survived' }
  } finally {
    writeFileSync(join(tree, file), unchanged)
    session.kill()
  }
}

function printTable(mutants: readonly Mutant[], results: ReadonlyMap<string, Result>): void {
  const tried = mutants.filter(({ key }) => results.has(key))
  const count = (some: readonly Mutant[], outcome: Outcome): number =>
    some.filter(({ key }) => results.get(key)?.outcome === outcome).length
  print('| folder | drawn | run | killed | timed out | survived |\n| --- | --- | --- | --- | --- | --- |')
  for (const folder of new Set(mutants.map((mutant) => mutant.folder))) {
    const drawn = mutants.filter((mutant) => mutant.folder === folder)
    const some = tried.filter((mutant) => mutant.folder === folder)
    const counts = (['killed', 'timed out', 'survived'] as const).map((outcome) => count(some, outcome))
    print(`| \`${folder}\` | ${[drawn.length, some.length, ...counts].join(' | ')} |`)
  }
  for (const mutant of tried)
    if (results.get(mutant.key)?.outcome !== 'killed')
      print(`${results.get(mutant.key)?.outcome}: ${describe(mutant)}`)
}

function describe({ file, line, original, replacement }: Mutant): string {
  const short = (text: string): string => text.replaceAll(/\s+/g, ' ').slice(0, 100)
  return `${file}:${line} ${short(original)} → ${short(replacement)}`
}

function print(line: string): void {
  process.stdout.write(`${line}\n`)
}

await main()
