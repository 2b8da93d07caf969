// What clients may ask: the shapes of their requests, checked once for both sockets.
import {
  FINGERPRINT_LENGTH,
  MAX_ID_LENGTH,
  MAX_MIN_VALID_SECONDS,
  MAX_WAIT_SECONDS,
  type RejectRequest,
  type TokenRequest,
} from '../protocol.ts'

/** A request that was understood, or the sentence that says how to write it. */
export type Reading<T> = { readonly request: T } | { readonly mistake: string }

const MAX_CLIENT_LENGTH = 128
const FINGERPRINT = new RegExp(`^[0-9a-f]{${FINGERPRINT_LENGTH}}$`)
const FINGERPRINT_SHAPE = `the first ${FINGERPRINT_LENGTH} hex digits of the token's SHA-256, in lower case`

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** `data.id` of a request, where it has the right shape. */
export function readId(data: unknown): string | null {
  const id = isRecord(data) ? data['id'] : null
  return typeof id === 'string' && id.length >= 1 && id.length <= MAX_ID_LENGTH ? id : null
}

/** The fields of `token.get` and `token.subscribe`. Others are passed over: a newer client may send them. */
export function readTokenRequest(data: Record<string, unknown>): Reading<TokenRequest> {
  const mistake =
    mistakeInSeconds(data, 'minValidSeconds', MAX_MIN_VALID_SECONDS) ??
    mistakeInSeconds(data, 'waitSeconds', MAX_WAIT_SECONDS) ??
    mistakeInFingerprint(data, 'notFingerprint') ??
    mistakeInClient(data)
  return mistake === undefined ? { request: data } : { mistake }
}

/** The fields of `token.reject`: exactly one of the two. */
export function readRejectRequest(data: Record<string, unknown>): Reading<RejectRequest> {
  const { accessToken, fingerprint } = data
  if ((accessToken === undefined) === (fingerprint === undefined)) {
    return {
      mistake: 'Give either `accessToken` or `fingerprint`, the token to which the service answered 401',
    }
  }
  const mistake =
    accessToken !== undefined && (typeof accessToken !== 'string' || accessToken === '')
      ? '`accessToken` is a string that is not empty'
      : mistakeInFingerprint(data, 'fingerprint')
  return mistake === undefined ? { request: data } : { mistake }
}

function mistakeInSeconds(data: Record<string, unknown>, name: string, max: number): string | undefined {
  const value = data[name]
  if (value === undefined) return undefined
  const isInRange = typeof value === 'number' && value >= 0 && value <= max
  return isInRange ? undefined : `\`${name}\` is a number of seconds from 0 to ${max}`
}

function mistakeInFingerprint(data: Record<string, unknown>, name: string): string | undefined {
  const value = data[name]
  if (value === undefined || (typeof value === 'string' && FINGERPRINT.test(value))) return undefined
  return `\`${name}\` is ${FINGERPRINT_SHAPE}`
}

function mistakeInClient({ client }: Record<string, unknown>): string | undefined {
  const isName = typeof client === 'string' && client.length >= 1 && client.length <= MAX_CLIENT_LENGTH
  return client === undefined || isName
    ? undefined
    : `\`client\` is a name of 1 to ${MAX_CLIENT_LENGTH} characters`
}
