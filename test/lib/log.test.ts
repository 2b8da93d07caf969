import { expect, test } from 'vitest'
import { hideInStacks, limitFaults, logFault, stackOf } from '../../src/lib/log.ts'
import { createRecords } from '../support/records.ts'

const HOUR_MS = 3_600_000

test('a stack has the causes, and no secret in any encoding', () => {
  const secret = 'hush-hush-4711'
  hideInStacks('test', () => [secret])
  const cause = new Error(`refused ${Buffer.from(secret).toString('base64')}`)
  const text = stackOf(new TypeError(`not a pair: ${secret}`, { cause }))
  expect(text).toMatch(/^TypeError: not a pair: \S+\n +at .*log\.test\.ts/)
  expect(text).toMatch(/^caused by Error: refused \S+\n +at /m)
  expect(text).not.toContain(secret)
  expect(text).not.toContain(Buffer.from(secret).toString('base64'))
  for (const thrown of ['a text', undefined, { toString: null }])
    expect(typeof stackOf(thrown)).toBe('string')
})

test('a fault of one place is one record an hour, with the count since the last; others are as before', () => {
  const { log, records } = createRecords()
  let nowMs = 0
  const limited = limitFaults(log, () => nowMs)
  const here = (): void => logFault(limited, new Error('here'))
  const elsewhere = (): void => logFault(limited, new Error('elsewhere'))
  for (let i = 0; i < 3; i += 1) here()
  elsewhere()
  for (let i = 0; i < 2; i += 1) limited('info', 'Another', { event: 'other' })
  nowMs = HOUR_MS - 1
  here()
  nowMs = HOUR_MS
  here()
  expect(records.map(({ level, fields }) => [level, fields.event, fields['count']])).toEqual([
    ['crit', 'internal-fault', 1],
    ['crit', 'internal-fault', 1],
    ['info', 'other', undefined],
    ['info', 'other', undefined],
    ['crit', 'internal-fault', 4],
  ])
})
