// A described service from its other side: reads a request for a token, and places what an answer has.
import type { IncomingHttpHeaders } from 'node:http'
import type { Described } from '../config/config.ts'
import { isRecord, parseRecord } from '../lib/input.ts'

export type Fields = Readonly<Record<string, unknown>>

/** The fields with this value at this path. */
export function placedAt(fields: Fields, [name = '', ...rest]: readonly string[], value: unknown): Fields {
  const inner = fields[name]
  return {
    ...fields,
    [name]: rest.length === 0 ? value : placedAt(isRecord(inner) ? inner : {}, rest, value),
  }
}

/** Key and secret of a request; undefined: the service takes none. */
interface AskedPair {
  readonly apiKey?: unknown
  readonly apiSecret?: unknown
}

const ASSERTION_FIELDS = {
  client: 'client_assertion',
  grant: 'assertion',
  exchange: 'subject_token',
} as const

/**
 * Key and secret of a request to this service, or what is wrong with it, without its values. The signature of
 * an assertion is not checked: the stand-in has no key.
 */
export function pairIn(
  { send, names, assertion }: Described['pair'],
  { headers, body }: { headers: IncomingHttpHeaders; body: string },
): AskedPair | string {
  const isJson = send === 'json' || send === 'headers'
  const fields = isJson ? (parseRecord(body) ?? {}) : Object.fromEntries(new URLSearchParams(body))
  if (send === 'basic' || send === 'basic-plain')
    return basicPair(headers.authorization ?? '', { isEncoded: send === 'basic' })
  if (send === 'assertion') {
    const name = ASSERTION_FIELDS[assertion!.as]
    const [, claims = ''] = String(fields[name]).split('.')
    const { iss, exp } = parseRecord(Buffer.from(claims, 'base64url').toString()) ?? {}
    if (typeof exp !== 'number' || exp * 1_000 < Date.now())
      return `The field ${name} must be a JWT that has not expired`
    return { apiKey: assertion!.kind === 'ready' ? fields['client_id'] : iss }
  }
  const place =
    send === 'headers' ? (name: string) => headers[name.toLowerCase()] : (name: string) => fields[name]
  const sent = Object.entries(names).filter(([, name]) => name !== null) as [string, string][]
  const pair = Object.fromEntries(sent.map(([which, name]) => [which, place(name)]))
  const isWhole = Object.values(pair).every((value) => typeof value === 'string')
  return isWhole ? pair : `The request must have ${sent.map(([, name]) => name).join(' and ')}, as ${send}`
}

function basicPair(authorization: string, { isEncoded }: { isEncoded: boolean }): AskedPair | string {
  const [, basic = ''] = /^Basic (\S+)$/i.exec(authorization) ?? []
  const [, apiKey, apiSecret] = /^([^:]*):(.*)$/.exec(Buffer.from(basic, 'base64').toString()) ?? []
  if (apiKey === undefined) return 'Key and secret must be sent as HTTP Basic'
  const decoded = (part = ''): unknown => (isEncoded ? new URLSearchParams(`=${part}`).get('') : part)
  return { apiKey: decoded(apiKey), apiSecret: decoded(apiSecret) }
}
