// The quick tests: `npm test`.
import { configDefaults, defineConfig } from 'vitest/config'

/** Left to `npm run test:system`. */
export const SYSTEM_TESTS = ['test/systemd/**/*.test.ts', 'test/**/*.system.test.ts']

/** The shared store's tests run with the library that ours is a fork of, too: `REDIS_LIBRARY=ioredis npx vitest run … test/share`. */
const library = process.env['REDIS_LIBRARY']

export default defineConfig({
  resolve: { alias: library === undefined ? {} : { iovalkey: library } },
  test: {
    root: new URL('..', import.meta.url).pathname,
    include: ['test/**/*.test.ts'],
    exclude: [...configDefaults.exclude, ...SYSTEM_TESTS],
    globalSetup: ['test/support/bundled-program.ts'],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    maxWorkers: 2,
  },
})
