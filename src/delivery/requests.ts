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
const FINGERPRINT_SHAPE = `the first ${FINGERPRINT_LENGTH} hex digits of the token's SHA-256, in lower case`

/** `data.id` of a request, where it has the right shape. */
export function readId(data: unknown): string | null {
  const id = isRecord(data) ? data['id'] : null
  return typeof id === 'string' && id.length >= 1 && id.length <= MAX_ID_LENGTH ? id : null
}

/** The fields of `token.get` and `token.subscribe`. Others are ignored: a newer client may send them. */
export function parseTokenRequest(data: Record<string, unknown>): Parsed<TokenRequest> {
  const problem =
    problemInSeconds(data, 'minValidSeconds', MAX_MIN_VALID_SECONDS) ??
    problemInSeconds(data, 'waitSeconds', MAX_WAIT_SECONDS) ??
    problemInFingerprint(data, 'notFingerprint') ??
    problemInClient(data)
  return problem === undefined ? { request: data } : { problem }
}

/** The fields of `token.reject`: exactly one of the two. */
export function parseRejectRequest(data: Record<string, unknown>): Parsed<RejectRequest> {
  const { accessToken, fingerprint } = data
  if ((accessToken === undefined) === (fingerprint === undefined)) {
    return {
      problem: 'Give either `accessToken` or `fingerprint`, the token to which the service answered 401',
    }
  }
  const isToken = accessToken === undefined || (typeof accessToken === 'string' && accessToken !== '')
  const problem = isToken
    ? (problemInFingerprint(data, 'fingerprint') ?? problemInClient(data))
    : '`accessToken` is a string that is not empty'
  return problem === undefined ? { request: data } : { problem }
}

function problemInSeconds(data: Record<string, unknown>, name: string, max: number): string | undefined {
  const value = data[name]
  if (value === undefined) return undefined
  const isInRange = typeof value === 'number' && value >= 0 && value <= max
  return isInRange ? undefined : `\`${name}\` is a number of seconds from 0 to ${max}`
}

function problemInFingerprint(data: Record<string, unknown>, name: string): string | undefined {
  const value = data[name]
  if (value === undefined || (typeof value === 'string' && FINGERPRINT.test(value))) return undefined
  return `\`${name}\` is ${FINGERPRINT_SHAPE}`
}

function problemInClient({ client }: Record<string, unknown>): string | undefined {
  const isName = typeof client === 'string' && client.length >= 1 && client.length <= MAX_CLIENT_LENGTH
  return client === undefined || isName
    ? undefined
    : `\`client\` is a name of 1 to ${MAX_CLIENT_LENGTH} characters`
}
