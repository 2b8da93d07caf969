// The shapes of requests, validated once for both sockets.
import { isRecord } from '../lib/input.ts'
import {
  FINGERPRINT_LENGTH,
  MAX_ID_LENGTH,
  MAX_MIN_VALID_SECONDS,
  MAX_WAIT_SECONDS,
  type RejectRequest,
  type TokenRequest,
} from '../protocol.ts'

/** A request that was understood, or the sentence that says how to write it. */
export type Parsed<T> = { readonly request: T } | { readonly problem: string }

const MAX_CLIENT_LENGTH = 128
const FINGERPRINT = new RegExp(`^[0-9a-f]{${FINGERPRINT_LENGTH}}$`)

interface Field {
  readonly isValid: (value: unknown) => boolean
  readonly shape: string
}
const seconds = (max: number): Field => ({
  isValid: (value) => typeof value === 'number' && value >= 0 && value <= max,
  shape: `a number of seconds from 0 to ${max}`,
})
const fingerprint: Field = {
  isValid: (value) => typeof value === 'string' && FINGERPRINT.test(value),
  shape: `the first ${FINGERPRINT_LENGTH} hex digits of the token's SHA-256, in lower case`,
}
const client: Field = {
  isValid: (value) => typeof value === 'string' && value.length >= 1 && value.length <= MAX_CLIENT_LENGTH,
  shape: `a name of 1 to ${MAX_CLIENT_LENGTH} characters`,
}
const accessToken: Field = {
  isValid: (value) => typeof value === 'string' && value !== '',
  shape: 'a string that is not empty',
}
const TOKEN_FIELDS = Object.entries({
  minValidSeconds: seconds(MAX_MIN_VALID_SECONDS),
  waitSeconds: seconds(MAX_WAIT_SECONDS),
  notFingerprint: fingerprint,
  client,
})
const REJECT_FIELDS = Object.entries({ accessToken, fingerprint, client })

/** `data.id` of a request, where it has the right shape. */
export function readId(data: unknown): string | null {
  const id = isRecord(data) ? data['id'] : null
  return typeof id === 'string' && id.length >= 1 && id.length <= MAX_ID_LENGTH ? id : null
}

/** The fields of `token.get` and `token.subscribe`. Others are ignored: a newer client may send them. */
export function parseTokenRequest(data: Record<string, unknown>): Parsed<TokenRequest> {
  return parse(data, TOKEN_FIELDS)
}

/** The fields of `token.reject`: exactly one of the first two. */
export function parseRejectRequest(data: Record<string, unknown>): Parsed<RejectRequest> {
  if ((data['accessToken'] === undefined) === (data['fingerprint'] === undefined)) {
    return {
      problem: 'Give either `accessToken` or `fingerprint`, the token to which the service answered 401',
    }
  }
  return parse(data, REJECT_FIELDS)
}

function parse(data: Record<string, unknown>, fields: readonly [string, Field][]): Parsed<object> {
  for (const [name, { isValid, shape }] of fields) {
    const value = data[name]
    if (value !== undefined && !isValid(value)) return { problem: `\`${name}\` is ${shape}` }
  }
  return { request: data }
}
