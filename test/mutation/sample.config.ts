// The tests that a sampled mutant is run against, in the order that sample.ts gives.
import { BaseSequencer, type TestSpecification } from 'vitest/node'
import { defineConfig, mergeConfig } from 'vitest/config'
import suite from '../vitest.config.ts'

const order = JSON.parse(process.env['KYC_TOKEND_TEST_ORDER'] ?? '[]') as string[]

class GivenOrder extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ moduleId }: TestSpecification): number =>
      order.findIndex((file) => moduleId.endsWith(`/${file}`))
    return files.toSorted((a, b) => rank(a) - rank(b))
  }
}

export default mergeConfig(
  suite,
  defineConfig({ test: { setupFiles: ['test/mutation/setup.ts'], sequence: { sequencer: GivenOrder } } }),
)
