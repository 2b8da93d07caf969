// The described service from its other side: reads a request, and places what an answer has.
import type { IncomingHttpHeaders } from 'node:http'
import type { ServiceConfig } from '../config/config.ts'
import { isRecord, parseJson } from '../lib/input.ts'

export type Fields = Readonly<Record<string, unknown>>

/** The fields with this value at this path. */
export function placedAt(fields: Fields, [name = '', ...rest]: readonly string[], value: unknown): Fields {
  const inner = fields[name]
  return {
    ...fields,
    [name]: rest.length === 0 ? value : placedAt(isRecord(inner) ? inner : {}, rest, value),
  }
}

/** Undefined: the service takes none. */
export interface AskedPair {
  readonly apiKey: unknown
  readonly apiSecret: unknown
}

/** Key and secret of a request to the described service, or what is wrong with it, without its values. */
export function credentialsOf(
  service: ServiceConfig,
  { headers, body }: { headers: IncomingHttpHeaders; body: string },
): AskedPair | string {
  const { send, names } = service
  const isJson = send === 'json' || send === 'headers'
  const fields = isJson ? fieldsOf(body) : Object.fromEntries(new URLSearchParams(body))
  if (send === 'basic' || send === 'basic-plain') return basicPair(headers, { isEncoded: send === 'basic' })
  if (send === 'assertion') return assertionPair(service, fields)
  const place: Fields = send === 'headers' ? headers : fields
  const valueOf = (name: string | null): unknown =>
    name === null ? undefined : place[send === 'headers' ? name.toLowerCase() : name]
  const pair = { apiKey: valueOf(names.apiKey), apiSecret: valueOf(names.apiSecret) }
  const asked = [names.apiKey, names.apiSecret].filter((name) => name !== null)
  return asked.every((name) => typeof valueOf(name) === 'string')
    ? pair
    : `The request must have ${asked.join(' and ')}, as ${send}`
}

function basicPair({ authorization = '' }: IncomingHttpHeaders, { isEncoded }: { isEncoded: boolean }) {
  const [, basic = ''] = /^Basic (\S+)$/i.exec(authorization) ?? []
  const text = Buffer.from(basic, 'base64').toString()
  const colon = text.indexOf(':')
  if (colon < 0) return 'Key and secret must be sent as HTTP Basic'
  const decoded = (part: string): string | null =>
    isEncoded ? new URLSearchParams(`=${part}`).get('') : part
  return { apiKey: decoded(text.slice(0, colon)), apiSecret: decoded(text.slice(colon + 1)) }
}

const ASSERTION_FIELDS = {
  client: 'client_assertion',
  grant: 'assertion',
  exchange: 'subject_token',
} as const

/**
 * The issuer of the assertion; of a ready-made one the client's id, if it is sent. Its signature is not
 * checked: the stand-in has no key.
 */
function assertionPair({ assertion }: ServiceConfig, fields: Fields): AskedPair | string {
  const { as, file } = assertion!
  const name = ASSERTION_FIELDS[as]
  const sent = fields[name]
  const [, claims = ''] = typeof sent === 'string' ? sent.split('.') : []
  const { iss, exp } = fieldsOf(Buffer.from(claims, 'base64url').toString())
  if (typeof exp !== 'number' || exp * 1_000 < Date.now())
    return `The field ${name} must be a JWT that has not expired`
  return { apiKey: file === null ? iss : fields['client_id'], apiSecret: undefined }
}

function fieldsOf(body: string): Fields {
  const fields = parseJson(body)
  return isRecord(fields) ? fields : {}
}
