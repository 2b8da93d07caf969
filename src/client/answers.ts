// What a daemon answers, judged before anything relies on it: whoever listens at the socket may send anything.
import { STANDARD_USE, type FaultCode } from '../protocol.ts'
import { WORD } from './errors.ts'
import type { Frame } from './frames.ts'
import type { ClientToken } from './token-source.ts'

/** Faults that say that there is no token. */
export const WITHOUT_TOKEN: ReadonlySet<unknown> = new Set<FaultCode>([
  'no-token-yet',
  'expired',
  'account-inactive',
  'account-not-found',
])

/** The answer, with what older daemons leave out; undefined: kyc-tokend sends none such. */
export function checkedAnswer(frame: Frame): Frame | undefined {
  const { type, data } = frame
  if (!hasToken(frame)) return type !== 'reject.result' || isVerdictSound(data) ? frame : undefined
  const token = { ...data, ...withDefaults(data) }
  return isTokenSound(token) ? { type, data: token } : undefined
}

function hasToken({ type, data }: Frame): boolean {
  return type === 'token.result' || (type === 'token.changed' && 'accessToken' in data)
}

/** What older daemons leave out; the other fields stay where they are. */
function withDefaults(data: Frame['data']): object {
  const { header = STANDARD_USE.header, prefix = STANDARD_USE.prefix, refusedBy = [401] } = data
  return { header, prefix, refusedBy }
}

/** The token of an answer that was checked; undefined: it has none. */
export function tokenOf(answer: Frame): ClientToken | undefined {
  return hasToken(answer) ? (answer.data as unknown as ClientToken) : undefined
}

/** For one caller: what he changes in it nobody else has. */
export function tokenCopy(token: ClientToken): ClientToken {
  return { ...token, refusedBy: [...token.refusedBy] }
}

/** True if there is no token, by this answer: the last one is no longer good either. */
export function endsMemory({ type, data }: Frame): boolean {
  return type === 'fault' && WITHOUT_TOKEN.has(data['code'])
}

/** True if its header can be sent, its end is an instant and its service an address. */
function isTokenSound(token: Frame['data']): boolean {
  const isText = (name: string, pattern: RegExp): boolean => {
    const value = token[name]
    return typeof value === 'string' && pattern.test(value)
  }
  const { expiresAt, refusedBy, baseUrl } = token
  return (
    isText('accessToken', /^[\x21-\x7e\xa1-\xff]+$/) &&
    isText('header', /^[\w!#$%&'*+.^`|~-]+$/) &&
    isText('prefix', /^[\x20-\x7e]*$/) &&
    isText('fingerprint', /^[0-9a-f]+$/) &&
    !Number.isNaN(Date.parse(String(expiresAt))) &&
    Array.isArray(refusedBy) &&
    isUrl(baseUrl)
  )
}

function isVerdictSound({ verdict, retryAfterSeconds = 0 }: Frame['data']): boolean {
  return typeof verdict === 'string' && WORD.test(verdict) && typeof retryAfterSeconds === 'number'
}

function isUrl(text: unknown): boolean {
  try {
    return typeof text === 'string' && /^https?:/.test(new URL(text).protocol)
  } catch {
    return false
  }
}
