// `npm run mutate:sample`: planted faults, a sample that a seed decides, against the tests that concern each.
import { spawn, execFileSync } from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  cpSync,
  existsSync,
  globSync,
  mkdtempSync,
  readFileSync,
  rmSync,
} from 'node:fs'
import { writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { drawMutants, type Mutant } from './mutants.ts'

const USAGE = `Usage: npm run mutate:sample -- [--count 300] [--seed 1] [--folder src/config]... [--limit 240] [--retry]
                               [--results ${join(tmpdir(), 'kyc-tokend-mutants.jsonl')}]
A mutant may take 240 s. What the results file has is not run again; with --retry those that survived or timed out are.`

/** The tests that concern a folder, beside those that import the file; of other folders: those of the folder's name. */
const TESTS: Readonly<Record<string, readonly string[]>> = {
  'src/build': ['test/build', 'test/client/package.test.ts'],
  'src/config': ['test/config', 'test/commands/check.test.ts', 'test/faults/secrets-rotation.test.ts'],
  'src/lib': ['test/lib', 'test/daemon.test.ts'],
  'src/report': ['test/report', 'test/manual/tables.test.ts', 'test/faults/service.test.ts'],
  src: ['test/daemon.test.ts', 'test/faults', 'test/cli.test.ts', 'test/stalled-disk.test.ts'],
}

type Outcome = 'killed' | 'survived' | 'timed out'
type Result = { readonly key: string; readonly outcome: Outcome; readonly by?: string }
/** Of vitest's JSON reporter. */
type Report = {
  testResults: {
    name: string
    startTime: number
    endTime: number
    assertionResults: { status: string; fullName: string }[]
  }[]
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

const results = new Map(readResults().map((result) => [result.key, result]))
const durations = new Map<string, number>()
const passesUnchanged = new Map<string, boolean>()

async function main(): Promise<void> {
  if (values.help) return print(USAGE)
  const sample = await drawMutants(Number(values.count), Number(values.seed))
  const mutants = sample.filter(({ folder }) => values.folder?.includes(folder) ?? true)
  const due = mutants.filter(({ key }) => isDue(results.get(key)))
  const tree = copyTree()
  process.once('SIGINT', () => process.exit(130))
  process.once('exit', () => rmSync(tree, { recursive: true, force: true }))
  for (const [index, mutant] of due.entries()) {
    const result = await tryMutant(tree, mutant)
    results.set(result.key, result)
    appendFileSync(values.results, `${JSON.stringify(result)}\n`)
    print(`${index + 1}/${due.length} ${result.outcome}: ${describe(mutant)} ${result.by ?? ''}`)
  }
  printTable(mutants)
}

function isDue(result: Result | undefined): boolean {
  return result === undefined || (values.retry && result.outcome !== 'killed')
}

function readResults(): Result[] {
  if (!existsSync(values.results)) return []
  const lines = readFileSync(values.results, 'utf8').trimEnd().split('\n')
  return lines.map((line) => JSON.parse(line) as Result)
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

/** A test that fails on the unchanged tree, too, says nothing about the mutant. */
async function tryMutant(tree: string, mutant: Mutant): Promise<Result> {
  const { key, file, text } = mutant
  for (;;) {
    writeFileSync(join(tree, file), text)
    const run = await runTests(tree, testsFor(mutant))
    cpSync(file, join(tree, file))
    if (run.outcome !== 'killed' || run.testFile === undefined) return { key, ...run }
    const { testFile, by } = run
    if (!passesUnchanged.has(testFile)) {
      const { outcome } = await runTests(tree, [testFile])
      passesUnchanged.set(testFile, outcome === 'survived')
    }
    if (passesUnchanged.get(testFile)) return { key, outcome: 'killed', by: `(${testFile}: ${by})` }
    print(`${testFile} fails without a mutant, and is left out.`)
  }
}

/** Those that import the file first, and the quick ones before the slow. */
function testsFor({ file, folder }: Mutant): string[] {
  const all = globSync('test/**/*.test.ts').filter((test) => !/\.system\.|^test.systemd/.test(test))
  const near = all.filter((test) => readFileSync(test, 'utf8').includes(`/${file}'`))
  const folders = TESTS[folder] ?? [folder.replace('src', 'test')]
  const others = all.filter((test) => !near.includes(test) && folders.some((start) => test.startsWith(start)))
  const cost = (test: string): number => durations.get(test) ?? 0
  return [near, others]
    .flatMap((tests) => tests.toSorted((a, b) => cost(a) - cost(b)))
    .filter((test) => passesUnchanged.get(test) !== false)
}

type Run = { readonly outcome: Outcome; readonly testFile?: string; readonly by?: string }

async function runTests(tree: string, tests: readonly string[]): Promise<Run> {
  const output = join(tree, 'reports', 'mutant.json')
  rmSync(output, { force: true })
  const options = ['--config', 'test/mutation/sample.config.ts', '--max-workers', '1', '--bail', '1']
  const child = spawn(
    join(tree, 'node_modules', '.bin', 'vitest'),
    ['run', ...options, '--reporter', 'json', '--outputFile', output, ...tests],
    {
      cwd: tree,
      env: { ...process.env, KYC_TOKEND_TEST_ORDER: JSON.stringify(tests) },
      stdio: 'ignore',
      // A group of its own, so that what it starts ends with it.
      detached: true,
    },
  )
  const kill = (): void => void (child.pid !== undefined && process.kill(-child.pid, 'SIGKILL'))
  process.once('exit', kill)
  const limit = Promise.withResolvers<'timed out'>()
  const timer = setTimeout(() => limit.resolve('timed out'), Number(values.limit) * 1_000)
  const ended = new Promise<number | null>((done) => child.once('exit', done))
  const status = await Promise.race([ended, limit.promise])
  clearTimeout(timer)
  process.off('exit', kill)
  if (status === 'timed out') {
    kill()
    return { outcome: 'timed out' }
  }
  if (status === 0) return { outcome: 'survived' }
  if (!existsSync(output)) return { outcome: 'killed', by: 'it cannot be built' }
  const { testResults } = JSON.parse(readFileSync(output, 'utf8')) as Report
  const local = (name: string): string => name.slice(resolve(tree).length + 1)
  for (const { name, startTime, endTime, assertionResults } of testResults)
    if (assertionResults.length > 0) durations.set(local(name), endTime - startTime)
  // Files that were not run any more count as failed, too, but without a failed test.
  const failures = testResults.flatMap(({ name, assertionResults }) =>
    assertionResults
      .filter(({ status: end }) => end === 'failed')
      .map(({ fullName }) => ({ testFile: local(name), by: fullName })),
  )
  return { outcome: 'killed', ...(failures[0] ?? { by: 'no test failed, but the run did' }) }
}

function printTable(mutants: readonly Mutant[]): void {
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
