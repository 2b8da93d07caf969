// The tests that planted faults are run against: those of their folders which run in one process.
import { defineConfig } from 'vitest/config'

const folders = process.env['KYC_TOKEND_MUTATED'] ?? 'token'

export default defineConfig({
  test: {
    root: new URL('../..', import.meta.url).pathname,
    include: folders.split(',').map((folder) => `test/${folder}/**/*.test.ts`),
    exclude: [
      '**/*.system.test.ts',
      'test/share/{fleet-story,redis-access,manual}.test.ts',
      'test/report/log.test.ts',
      'test/config/hostile-directory.test.ts',
      'test/lib/libc.test.ts',
    ],
    setupFiles: ['test/mutation/setup.ts'],
    testTimeout: 60_000,
  },
})
