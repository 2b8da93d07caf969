// The tests that boot machines, build images or emulate another processor: `npm run test:system`.
import { configDefaults, defineConfig } from 'vitest/config'
import { timeoutFactor } from './support/timeout-factor.ts'
import { common, LONGEST_MS, SYSTEM_TESTS } from './vitest.config.ts'

export default defineConfig({
  test: {
    ...common,
    include: SYSTEM_TESTS,
    exclude: configDefaults.exclude,
    maxWorkers: 3,
    testTimeout: Math.min(LONGEST_MS, 90_000 * timeoutFactor),
    hookTimeout: 300_000 * timeoutFactor,
  },
})
