import { expect, test } from 'vitest'
import { statusOf, type StatusParts } from '../../src/delivery/status.ts'
import { initialState } from '../../src/token/state.ts'

const now = { bootMs: 5_000, wallMs: 1_700_000_000_000 }
const parts = {
  look: async () => undefined,
  files: () => [],
  clients: () => ({ ipc: null, http: null }),
  daemon: () => ({}),
  alert: () => null,
  share: () => null,
} as unknown as StatusParts

test.each([['web-7'], [null]])('a refusal that the host %s was given names it', (askedBy) => {
  const state = initialState({ baseUrl: 'https://service.test', credentialsId: 'first' }, now)
  const refusal = {
    reason: 'account-inactive',
    detail: 'Forbidden',
    status: 403,
    since: now,
    askedBy,
  } as const
  const { failure } = statusOf({ ...state, refusal }, now, parts)
  expect(failure).toEqual({
    reason: 'account-inactive',
    detail: 'Forbidden',
    status: 403,
    since: '2023-11-14T22:13:20.000Z',
    attempts: 1,
    ...(askedBy !== null && { askedBy }),
  })
})
