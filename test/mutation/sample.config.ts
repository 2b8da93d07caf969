// The tests that a sampled mutant is run against.
import { defineConfig, mergeConfig } from 'vitest/config'
import suite from '../vitest.config.ts'

export default mergeConfig(suite, defineConfig({ test: { setupFiles: ['test/mutation/setup.ts'] } }))
