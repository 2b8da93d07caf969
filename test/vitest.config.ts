// The quick tests: `npm test`.
import { configDefaults, defineConfig, type TestUserConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'
import { timeoutFactor } from './support/timeout-factor.ts'

/** No test takes longer than this, whatever the speed of the machine. */
export const LONGEST_MS = 180_000
/** Left to `npm run test:system`. */
export const SYSTEM_TESTS = ['test/systemd/**/*.test.ts', 'test/**/*.system.test.ts']
/** They start programs for long, build packages or wait in real time. Left to `npm run test:process`. */
export const PROCESS_TESTS = [
  'test/build/**/*.test.ts',
  'test/commands/demo.test.ts',
  'test/delivery/{inherited,members}.test.ts',
  'test/faults/!(internal).test.ts',
  'test/manual/{consumers,examples,pages,proxy,services}.test.ts',
  'test/simulation/**/*.test.ts',
  'test/stalled-disk.test.ts',
  'test/**/*.process.test.ts',
]
/** They start no daemon and mock no module: one process runs many of these files. */
const SHARING_TESTS = [
  'test/{config,share,simulation,source,token}/**/*.test.ts',
  'test/report/!(log).test.ts',
  'test/imports.test.ts',
]

/** The longest, those that wait beside those that compute; others come by their last time, or by size. */
const FIRST = [
  'scenarios/stories',
  'scenarios/scenarios',
  'cli',
  'setup/setup',
  'check/check',
  // Of the system tests.
  'systemd/races',
]

function rank({ moduleId }: TestSpecification): number {
  const index = FIRST.findIndex((name) => moduleId.endsWith(`/${name}.test.ts`))
  return index === -1 ? FIRST.length : index
}

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    // oxlint-disable-next-line unicorn/no-array-sort -- It is the sequencer's own.
    return (await super.sort(files)).toSorted((a, b) => rank(a) - rank(b))
  }
}

/** `REDIS_LIBRARY=ioredis npx vitest run … test/share`: with the library that ours is a fork of. */
const library = process.env['REDIS_LIBRARY']

export const common: TestUserConfig = {
  root: new URL('..', import.meta.url).pathname,
  globalSetup: ['test/support/bundled-program.ts'],
  testTimeout: Math.min(LONGEST_MS, 120_000 * timeoutFactor),
  hookTimeout: 120_000 * timeoutFactor,
  // A condition may come late on a busy machine.
  expect: { poll: { timeout: 20_000 * timeoutFactor } },
  // More than processors: much of the time a test waits.
  maxWorkers: 5,
  sequence: { sequencer: LongestFirst },
}

export default defineConfig({
  resolve: { alias: library === undefined ? {} : { iovalkey: library } },
  test: {
    ...common,
    projects: [
      {
        extends: true,
        test: {
          name: 'own process',
          include: ['test/**/*.test.ts'],
          exclude: [...configDefaults.exclude, ...SYSTEM_TESTS, ...PROCESS_TESTS, ...SHARING_TESTS],
        },
      },
      {
        extends: true,
        test: {
          name: 'shared process',
          isolate: false,
          include: SHARING_TESTS,
          exclude: [...configDefaults.exclude, ...SYSTEM_TESTS, ...PROCESS_TESTS],
        },
      },
    ],
  },
})
