// A vitest that stays warm: it runs one test file for each message, until its parent closes the channel.
import { createVitest } from 'vitest/node'

export type Answer = { readonly failed: string | undefined }

const vitest = await createVitest('test', {
  config: 'test/mutation/sample.config.ts',
  watch: false,
  maxWorkers: 1,
  bail: 1,
  reporters: [{}],
})

process.on('message', (file: string) => void run(file).then((answer) => process.send?.(answer)))
process.once('disconnect', () => void vitest.close())

async function run(file: string): Promise<Answer> {
  // `bail` counts what it remembers.
  vitest.state.idMap.clear()
  vitest.state.filesMap.clear()
  const specification = vitest.getRootProject().createSpecification(`${process.cwd()}/${file}`)
  const { testModules, unhandledErrors } = await vitest.runTestSpecifications([specification])
  for (const module of testModules) {
    for (const { fullName } of module.children.allTests('failed')) return { failed: fullName }
    if (module.state() === 'failed') return { failed: `${module.errors()[0]?.message}` }
  }
  return { failed: unhandledErrors.length > 0 ? String(unhandledErrors[0]) : undefined }
}
