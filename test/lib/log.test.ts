import { expect, test } from 'vitest'
import { hideInStacks, stackOf } from '../../src/lib/log.ts'

test('a stack has the causes, and no secret in any encoding', () => {
  const secret = 'hush-hush-4711'
  hideInStacks('test', () => [secret])
  const cause = new Error(`refused ${Buffer.from(secret).toString('base64')}`)
  const text = stackOf(new TypeError(`not a pair: ${secret}`, { cause }))
  expect(text).toMatch(/^TypeError: not a pair: \S+\n +at .*log\.test\.ts/)
  expect(text).toMatch(/^ +\[cause\]: Error: refused \S+\n +at /m)
  expect(text).not.toContain(secret)
  expect(text).not.toContain(Buffer.from(secret).toString('base64'))
})
