// The described service (`service`): the standard one, the preset, the rules across its keys, and the compiled description.

import { keyPath, silent, reportEach, usable, type Diagnostics } from './issues.ts'
import type { ServiceConfig } from './config.ts'
import { ENDPOINT, tokenUrlOf } from './base-url.ts'
import type { ValidPart } from './validate.ts'

/** The service of the interface description: the default of each key. */
export const STANDARD = {
  tokenUrl: ENDPOINT,
  send: 'json',
  names: { apiKey: 'apiKey', apiSecret: 'apiSecret' },
  parameters: {},
  headers: {},
  token: 'accessToken',
  lifetime: null,
  refusals: [
    { status: 500, says: 'Your account is not active', in: 'detail', reason: 'account-inactive' },
    { status: 404, says: 'Account not found', in: 'detail', reason: 'account-not-found' },
  ],
  refusedBy: [401],
} as const

/** The client credentials grant (RFC 6749, section 4.4). */
const OAUTH2 = {
  send: 'basic',
  // Of use with another `send` only (section 2.3.1).
  names: { apiKey: 'client_id', apiSecret: 'client_secret' },
  parameters: { grant_type: 'client_credentials' },
  token: 'access_token',
  lifetime: 'expires_in',
  refusals: ([400, 401] as const).flatMap(
    (status) =>
      [
        { status, says: 'invalid_client', in: 'error', reason: 'account-not-found' },
        { status, says: 'unauthorized_client', in: 'error', reason: 'account-inactive' },
      ] as const,
  ),
} as const
export const presetNames = ['oauth2'] as const

type ServiceInput = NonNullable<ValidPart['service']>
type Texts = Readonly<Record<string, string>>

/** The keys that make it another service, even at the same `baseUrl`. */
interface Described {
  /** The whole URL of the token endpoint. */
  readonly tokenUrl: string
  /** Key and secret as fields of a JSON object or of a form, or as HTTP Basic beside a form. */
  readonly send: 'json' | 'form' | 'basic'
  /** Names of those fields; not with `basic`. */
  readonly names: { readonly apiKey: string; readonly apiSecret: string }
  /** Further fields. */
  readonly parameters: Texts
  readonly headers: Texts
  /** Path of the token in the answer's JSON object. */
  readonly token: string
}

/** Resolves `service`: its request, and how its answers are read. `input` null: the standard service. */
export function resolveService(
  input: ServiceInput | null,
  { baseUrl, diagnostics }: { baseUrl: string; diagnostics: Diagnostics },
) {
  const given = withoutFaulty<Partial<ServiceInput>>(input ?? {})
  const preset = given.preset === 'oauth2' ? OAUTH2 : undefined
  const merged = { ...STANDARD, ...preset, ...given }
  const { send, token, lifetime, refusals, refusedBy } = merged
  const described: Described = {
    tokenUrl: tokenUrlOf(baseUrl, merged.tokenUrl),
    send,
    names: { ...STANDARD.names, ...preset?.names, ...withoutFaulty(given.names ?? {}) },
    parameters: withoutFaulty(merged.parameters),
    headers: withoutFaulty(merged.headers),
    token,
  }
  const problems = {
    'service.tokenUrl':
      preset !== undefined &&
      given.tokenUrl === undefined &&
      'is missing, and the preset "oauth2" needs it: write it as "/oauth/token" or "https://auth.example.com/oauth/token"',
    'service.names': namesProblem(described, given.names !== undefined),
    ...fieldProblems(described),
  }
  reportEach(problems, diagnostics.fault)
  return {
    ...described,
    /** The setting from which the host of `tokenUrl` comes. */
    hostSetting: merged.tokenUrl.startsWith('/') ? ('baseUrl' as const) : ('service.tokenUrl' as const),
    token: token.split('.'),
    /** Path of its life in seconds; null: the answer has none. */
    lifetime: lifetime?.split('.') ?? null,
    /** Answers that refuse the account for good. */
    refusals: usable(refusals).map(({ status, says, in: at, reason }) => ({
      // A missing part was reported as a fault.
      status: status!,
      /** Words that are looked for, case and white space aside. */
      says: says!,
      /** Path of the text in the answer's JSON object; null: anywhere in the answer. */
      in: at?.split('.') ?? null,
      reason: reason!,
      /** A JSON object without a text at that path does not say them. */
      isPathRequired: refusals === STANDARD.refusals,
    })),
    /** Statuses by which the API, not the token endpoint, says that a token is refused. */
    refusedBy: usable([...new Set(refusedBy)]),
    /** All of that as one canonical text; null: it is the standard service. */
    description: descriptionOf(described, baseUrl),
  }
}

/** The service of the interface description at this base URL. */
export function standardService(baseUrl = 'https://api.example.com'): ServiceConfig {
  return resolveService(null, { baseUrl, diagnostics: silent })
}

/** Without what was found faulty. */
function withoutFaulty<T extends object>(fields: T) {
  const kept = Object.entries(fields).filter(([, value]) => value !== undefined)
  return Object.fromEntries(kept) as { [Key in keyof T]: Exclude<T[Key], undefined> }
}

/** RFC 9110, sections 5.1 and 5.5: a token; visible characters, blanks and tabs within. */
const HEADER_NAME = /^[\w!#$%&'*+.^`|~-]+$/
const HEADER_VALUE = /^(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?$/
/** Headers that the request itself decides. */
const OWN_HEADER =
  /^(?:authorization|host|connection|content-.*|transfer-encoding|accept-encoding|expect|keep-alive|proxy-.*|te|trailer|upgrade)$/i

function namesProblem({ send, names }: Described, isGiven: boolean): string | false {
  if (send === 'basic')
    return isGiven && 'is of no use with "send": "basic": leave it out, or set "send" to "form" or "json"'
  return names.apiKey === names.apiSecret && 'gives key and secret one name: name two fields of the request'
}

/** Problems of parameters and headers, by key path. No sentence quotes a value. */
function fieldProblems({ send, names, parameters, headers }: Described): Record<string, string | undefined> {
  const taken = Object.values(names)
  const headerNames = Object.keys(headers).map((name) => name.toLowerCase())
  return Object.fromEntries([
    ...Object.keys(parameters)
      .filter((name) => send !== 'basic' && taken.includes(name))
      .map((name) => [
        keyPath(['service', 'parameters', name]),
        'has the name under which the key or the secret is sent: remove it, or change service.names',
      ]),
    ...Object.entries(headers).map(([name, value], index) => [
      keyPath(['service', 'headers', name]),
      headerProblem(name, value, headerNames.indexOf(name.toLowerCase()) < index),
    ]),
  ])
}

function headerProblem(name: string, value: string, isRepeated: boolean): string | undefined {
  if (!HEADER_NAME.test(name)) return 'is no name of an HTTP header: write it as "X-Client"'
  if (OWN_HEADER.test(name)) return 'is a header that kyc-tokend sets by itself: remove it'
  if (isRepeated) return 'is there twice, in other letters: remove one of the two'
  if (HEADER_VALUE.test(value)) return undefined
  return 'has a value that an HTTP header cannot have: write visible characters, and blanks only within'
}

function descriptionOf(described: Described, baseUrl: string): string | null {
  const { tokenUrl } = described
  const path = tokenUrl.startsWith(`${baseUrl}/`) ? tokenUrl.slice(baseUrl.length) : tokenUrl
  const text = canonical({ ...described, tokenUrl: path })
  return text === canonical(STANDARD) ? null : text
}

function canonical({ tokenUrl, send, names, parameters, headers, token }: Described): string {
  const sorted = (fields: Texts, nameOf = (name: string): string => name) =>
    Object.entries(fields)
      .map(([name, value]) => [nameOf(name), value] as const)
      .toSorted(([one], [other]) => (one < other ? -1 : 1))
  const sent = send === 'basic' ? null : [names.apiKey, names.apiSecret]
  const headersSent = sorted(headers, (name) => name.toLowerCase())
  return JSON.stringify([tokenUrl, send, sent, sorted(parameters), headersSent, token])
}
