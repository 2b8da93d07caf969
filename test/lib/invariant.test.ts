import { expect, onTestFinished, test } from 'vitest'
import { limitFaults, logFault } from '../../src/lib/internal-fault.ts'
import { BrokenInvariant, invariant, reportInvariants, type Report } from '../../src/lib/invariant.ts'
import { createRecords } from '../support/records.ts'

const failing: Report = (rule, facts) => {
  throw new BrokenInvariant(rule, facts)
}

test('a rule that is broken fails a test, and is told in a daemon, which goes on', () => {
  expect(() => invariant(true, 'a-rule', {})).not.toThrow()
  expect(() => invariant(false, 'a-rule', { count: 2 })).toThrow('a-rule {"count":2}')
  const { log, records } = createRecords()
  const limited = limitFaults(log, () => 0)
  reportInvariants((rule, facts) => logFault(limited, new BrokenInvariant(rule, facts)))
  onTestFinished(() => reportInvariants(failing))
  for (let count = 0; count < 3; count += 1) invariant(false, 'a-rule', { count })
  // Another place in the program.
  invariant(false, 'another-rule', {})
  expect(records).toMatchObject([
    { level: 'crit', fields: { event: 'internal-fault', count: 1 } },
    { level: 'crit', fields: { event: 'internal-fault', count: 1 } },
  ])
  const stack = /^BrokenInvariant: a-rule \{"count":0\}\n +at .*invariant\.test\.ts/
  expect(records[0]?.fields['stack']).toMatch(stack)
})
