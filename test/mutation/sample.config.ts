// The tests that a sampled mutant is run against.
import { defineConfig } from 'vitest/config'
import { common } from '../vitest.config.ts'

export default defineConfig({
  test: { ...common, include: ['test/**/*.test.ts'], setupFiles: ['test/mutation/setup.ts'] },
})
