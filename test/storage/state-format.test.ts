import { describe, expect, test } from 'vitest'
import {
  formatSaved,
  parseSavedToken,
  parseSavedState,
  type SavedState,
  type Written,
} from '../../src/storage/saved-state.ts'
import { fingerprintOf, type Token } from '../../src/token/token.ts'

const at = { bootMs: 1_000, wallMs: 1_800_000_000_000 }
const written: Written = { at, bootId: 'boot-one', bootMark: 'mark-one' }
const remembered: SavedState = {
  isOrderly: true,
  credentialsId: 'subject',
  generation: 3,
  answers: 7,
  tokenlessFrom: at,
  tokenless: { forMs: 100, readAtMs: 900 },
  failure: { reason: 'rejected', detail: 'Forbidden', status: 403, since: at, attempts: 2, retryAtMs: 5_000 },
  objection: {
    reason: 'account-inactive',
    detail: 'Your account is not active',
    status: 500,
    says: 'is not active',
    since: at,
    askedBy: 'web-17',
    known: 'what share/ wrote',
  },
  candidate: {
    credentialsId: 'other',
    failure: {
      reason: 'account-not-found',
      detail: 'Account not found',
      status: 404,
      says: 'account not found',
      since: at,
      askedBy: 'web-17',
      known: 'what share/ wrote',
      attempts: 1,
      retryAtMs: 0,
    },
  },
  baseUrl: 'https://api.example.com',
  notBefore: { other: 6_000 },
  pace: { requestedMs: 900, reported: 1 },
  lastRequestAt: at,
  lastSuccessAt: at,
  loggedEnd: 'pair 2027-03-01T00:00:00.000Z 604800',
}
const kept: Token = {
  accessToken: 'opaque',
  fingerprint: fingerprintOf('opaque'),
  generation: 1,
  baseUrl: 'https://api.example.com',
  credentialsId: 'subject',
  received: at,
  lifeMs: 900_000,
  expiresAtMs: 901_000,
  expirySource: 'assumed',
  refreshAtMs: 500_000,
  answer: 5,
  isOfClients: false,
  isSameUntilEnd: false,
  known: 'what share/ wrote',
}

/** The file that was written, with the value at the path replaced. */
function changed(file: string, path: string, value: unknown): string {
  const parsed = JSON.parse(file) as Record<string, unknown>
  const names = path.split('.')
  const last = names.pop() ?? ''
  const parent = names.reduce((record, name) => record[name] as Record<string, unknown>, parsed)
  parent[last] = value
  return JSON.stringify(parsed)
}

const files = [
  { name: 'remembered', text: formatSaved(remembered, written), parse: parseSavedState },
  { name: 'kept', text: formatSaved(kept, written), parse: parseSavedToken },
]

describe.each(files)('what is $name', ({ text, parse }) => {
  test('is read as it was written, on one line', () => {
    expect(parse(text)).toEqual(JSON.parse(text))
    expect(text).toMatch(/^[^\n]+\n$/)
  })

  test('is nothing in another version, or in a file of another kind', () => {
    for (const version of [2, 4, '3']) expect(parse(changed(text, 'version', version))).toBeUndefined()
    for (const other of files) if (other.parse !== parse) expect(other.parse(text)).toBeUndefined()
    expect(parse(`[${text}]`)).toBeUndefined()
    expect(parse(text.slice(0, -2))).toBeUndefined()
  })
})

test.each<[of: string, path: string, right: unknown[], wrong: unknown[]]>([
  ['remembered', 'tokenlessFrom', [at], [undefined, null, 7, { bootMs: 1 }]],
  ['remembered', 'notBefore', [{}], [undefined, null, 7, { other: 'soon' }]],
  ['remembered', 'failure.reason', ['network', 'rejected'], ['', 'account-inactive']],
  ['remembered', 'objection.reason', ['account-inactive', 'rejected'], ['', 'network']],
  ['remembered', 'failure.retryAtMs', [0, -1e14, 1e14], [-1e14 - 1, 1e14 + 1, 1e300]],
  ['remembered', 'generation', [0, Number.MAX_SAFE_INTEGER], [-1, 0.5, 2 ** 53]],
  ['kept', 'lifeMs', [0.5], [undefined, null, 0, -1]],
  ['kept', 'expirySource', ['jwt', 'response'], ['']],
  // It vouches for the token: not one character of that was lost.
  ['kept', 'fingerprint', [kept.fingerprint], [fingerprintOf('other')]],
])('what is %s: %s may be one of %j, and none of %j', (of, path, right, wrong) => {
  const { text, parse } = files.find(({ name }) => name === of)!
  for (const value of right) expect(parse(changed(text, `facts.${path}`, value))).toBeDefined()
  for (const value of wrong) expect(parse(changed(text, `facts.${path}`, value))).toBeUndefined()
})

test('a file of a former version, which has fewer facts, is read, and what it lacks is null', () => {
  const { text } = files[0]!
  const later = ['objection.says', 'tokenless', 'candidate', 'baseUrl', 'loggedEnd']
  const paths = ['written.bootMark', ...later.map((path) => `facts.${path}`)]
  const former = paths.reduce((file, path) => changed(file, path, undefined), text)
  const expected = paths.reduce((file, path) => changed(file, path, null), text)
  expect(parseSavedState(former)).toEqual(JSON.parse(expected))
})

test('a kept token that no answer could have given is none, though its fingerprint fits', () => {
  const { text, parse } = files.find(({ name }) => name === 'kept')!
  const withToken = (accessToken: string) => {
    const other = changed(text, 'facts.accessToken', accessToken)
    return parse(changed(other, 'facts.fingerprint', fingerprintOf(accessToken)))
  }
  for (const token of ['', 'opaque\n', 'ö', 'x'.repeat(16_385)]) expect(withToken(token)).toBeUndefined()
  expect(withToken('x'.repeat(16_384))).toBeDefined()
})
