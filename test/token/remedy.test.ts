import { expect, test } from 'vitest'
import type { Reason } from '../../src/token/outcome.ts'
import { remedyFor } from '../../src/token/remedy.ts'

const reasons: Record<Reason, true> = {
  'account-inactive': true,
  'account-not-found': true,
  rejected: true,
  'rate-limited': true,
  'server-error': true,
  'malformed-answer': true,
  network: true,
  timeout: true,
  tls: true,
}

test.each(Object.keys(reasons) as Reason[])('%s has a remedy of one line', (reason) => {
  expect(remedyFor(reason)).toMatch(/^[A-Z][^\n\r]{20,}[^.]$/)
})

test('a refusal says whom to ask and how to go on, as the interface description recommends', () => {
  for (const reason of ['account-inactive', 'account-not-found'] as const) {
    expect(remedyFor(reason)).toMatch(/support/)
    expect(remedyFor(reason)).toMatch(/kyc-tokend refresh/)
  }
  expect(remedyFor('account-not-found')).toMatch(/credentials/)
})
