// The tests that mutants are run against: those of the loop and of the source, the quickest first. A scenario runs the whole
// daemon, which takes too long for each of 2,000 mutants.
import { BaseSequencer, type TestSpecification } from 'vitest/node'
import { defineConfig } from 'vitest/config'

const LAST = ['response', 'state-store', 'property', 'story', 'fetch-token']

function rank({ moduleId }: TestSpecification): number {
  return LAST.findIndex((word) => moduleId.includes(`${word}.test.ts`))
}

class QuickestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return files.toSorted((a, b) => rank(a) - rank(b))
  }
}

export default defineConfig({
  test: {
    root: new URL('../..', import.meta.url).pathname,
    include: ['test/{token,source,storage}/**/*.test.ts'],
    setupFiles: ['test/mutation/setup.ts'],
    sequence: { sequencer: QuickestFirst },
    testTimeout: 60_000,
  },
})
