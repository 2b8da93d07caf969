// The tests that start programs for long or wait in real time: `npm run test:process`.
import { configDefaults, defineConfig } from 'vitest/config'
import { common, PROCESS_TESTS, SYSTEM_TESTS } from './vitest.config.ts'

export default defineConfig({
  test: {
    ...common,
    include: PROCESS_TESTS,
    exclude: [...configDefaults.exclude, ...SYSTEM_TESTS],
  },
})
