// `npm run mutate -- --count 200 --seed 1`: Stryker plants a sample of faults, which a seed draws, and runs tests against each.
import { createHash } from 'node:crypto'
import { globSync, readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { parseArgs } from 'node:util'
import { Stryker } from '@stryker-mutator/core'
import { Instrumenter } from '@stryker-mutator/instrumenter'

/** Two thirds of the sample: what asks the service, holds the token and keeps it. */
const CORE = ['src/token', 'src/source', 'src/storage']
/** The tests of the other folders start programs, which a planted fault does not reach. */
const REST = ['src/config', 'src/share', 'src/report', 'src/lib']

const { values } = parseArgs({
  options: {
    count: { type: 'string', default: '200' },
    seed: { type: 'string', default: '1' },
    folder: { type: 'string', multiple: true, default: [] },
  },
})

/** The mutants of one line, as Stryker's option `mutate` names them: `file:line:column-line:column`. */
async function mutantsIn(folders: readonly string[]): Promise<string[]> {
  const files = folders.flatMap((folder) => globSync(`${folder}/**/*.ts`)).toSorted()
  const sources = files.map((name) => ({ name, content: readFileSync(name, 'utf8'), mutate: true }))
  const { mutants } = await new Instrumenter(silent).instrument(sources, {
    plugins: null,
    excludedMutations: [],
    ignorers: [],
  })
  const ranges = mutants
    .filter(({ location: { start, end } }) => start.line === end.line)
    .map(({ fileName, location: { start, end } }) => {
      const from = `${start.line + 1}:${start.column}`
      return `${fileName}:${from}-${end.line + 1}:${end.column}`
    })
  return [...new Set(ranges)]
}

/** Those whose hash with the seed is least. */
async function draw(folders: readonly string[], count: number): Promise<string[]> {
  const rankOf = (mutant: string): string =>
    createHash('sha256').update(`${values.seed} ${mutant}`).digest('hex')
  const ranked = (await mutantsIn(folders)).map((mutant) => ({ mutant, rank: rankOf(mutant) }))
  return ranked
    .toSorted((a, b) => (a.rank < b.rank ? -1 : 1))
    .slice(0, count)
    .map(({ mutant }) => mutant)
}

const nothing = (): void => undefined
const no = (): boolean => false
const silent = {
  isTraceEnabled: no,
  isDebugEnabled: no,
  isInfoEnabled: no,
  isWarnEnabled: no,
  isErrorEnabled: no,
  isFatalEnabled: no,
  trace: nothing,
  debug: nothing,
  info: nothing,
  warn: nothing,
  error: nothing,
  fatal: nothing,
}

const count = Number(values.count)
const mutate =
  values.folder.length > 0
    ? await draw(values.folder, count)
    : [...(await draw(CORE, Math.ceil((count * 2) / 3))), ...(await draw(REST, Math.floor(count / 3)))]
// Only the tests of these folders are run without a fault first.
const folders = new Set(mutate.map((mutant) => dirname(mutant).split('/')[1]))
process.env['KYC_TOKEND_MUTATED'] = [...folders].join(',')
const results = await new Stryker({
  testRunner: 'vitest',
  plugins: ['@stryker-mutator/vitest-runner'],
  vitest: { configFile: 'test/mutation/vitest.config.ts', related: true },
  mutate,
  tsconfigFile: 'none',
  allowConsoleColors: false,
  concurrency: 2,
  timeoutMS: 5_000,
  reporters: ['clear-text', 'progress-append-only'],
  clearTextReporter: { allowColor: false, logTests: false, reportTests: false },
  incremental: true,
  incrementalFile: 'reports/mutation/incremental.json',
  cleanTempDir: 'always',
}).runMutationTest()
const survivors = results.filter(({ status }) => status === 'Survived' || status === 'NoCoverage')
process.stdout.write(`${results.length} planted, ${results.length - survivors.length} seen by a test\n`)
