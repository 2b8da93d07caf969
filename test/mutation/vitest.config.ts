// The tests that mutants are run against: those of the loop and of the source.
import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    root: new URL('../..', import.meta.url).pathname,
    include: ['test/{token,scenarios,source}/**/*.test.ts'],
    testTimeout: 20_000,
  },
})
