// The described service (`service`): the defaults, the rules across its keys, and the compiled description.
import type { PermanentReason } from '../token/outcome.ts'
import { tokenUrlOf } from './base-url.ts'
import { keyPath, silent, type Diagnostics } from './issues.ts'
import type { Settings } from './schema.ts'
import { OAUTH2, STANDARD } from './service-presets.ts'

/** A value of a field or a header that is a secret: its key path in `Credentials.further`. */
interface SecretReference {
  readonly secretAt: string
}
export type Value = string | number | boolean | SecretReference
type Values = Readonly<Record<string, Value>>
type Given = NonNullable<Settings['service']>
type Assertion = NonNullable<Given['assertion']>

/** The keys that make it another service, even at the same `baseUrl`. */
interface Described {
  /** The whole URL of the token endpoint. */
  readonly tokenUrl: string
  readonly send: NonNullable<Given['send']>
  /** Names of the fields or headers with key and secret; null: it is not sent. */
  readonly names: { readonly apiKey: string | null; readonly apiSecret: string | null }
  /** Further fields. */
  readonly parameters: Values
  readonly headers: Values
  /** Path of the token in the answer's JSON object. */
  readonly token: string
  readonly assertion: Omit<Assertion, 'key'> | null
}

/** Key and secret are fields of JSON or of a form, or headers; else they are HTTP Basic, or the issuer of an assertion. */
const HAS_NAMES: ReadonlySet<Described['send']> = new Set(['json', 'form', 'headers'])

/** An answer that refuses the account for good. */
export interface ServiceRefusal {
  readonly status: number
  /** Words that are looked for, case and white space aside. */
  readonly says: string
  /** Path of the text in the answer's JSON object; null: anywhere in the answer. */
  readonly in: readonly string[] | null
  readonly reason: PermanentReason
}

/** Resolves `service`: its request, and how its answers are read. `input` null: the standard service. */
export function resolveService(
  input: Settings['service'],
  { baseUrl, diagnostics }: { baseUrl: string; diagnostics: Diagnostics },
) {
  const { fault } = diagnostics
  const given: Partial<Given> = input ?? {}
  const preset = given.preset === 'oauth2' ? OAUTH2 : undefined
  const merged = { ...STANDARD, ...preset, ...given }
  const { send, token, lifetime, expires, refusals, refusedBy } = merged
  const { key: _, ...assertion } = { key: null, ...merged.assertion }
  const described: Described = {
    tokenUrl: tokenUrlOf(baseUrl, merged.tokenUrl),
    send,
    names: { ...STANDARD.names, ...preset?.names, ...given.names },
    parameters: valuesOf('parameters', merged.parameters, diagnostics),
    headers: valuesOf('headers', merged.headers, diagnostics),
    token,
    assertion: merged.assertion && (assertion as Omit<Assertion, 'key'>),
  }
  const use = { ...STANDARD.use, ...given.use }
  checkKeys({ ...merged, isUrlMissing: preset !== undefined && given.tokenUrl === undefined }, fault)
  if (!HEADER_NAME.test(use.header)) fault('service.use.header', NO_HEADER_NAME)
  checkNames(described, { isGiven: given.names !== undefined, fault })
  checkHeaders(described, fault)
  return {
    ...described,
    /** The setting from which the host of `tokenUrl` comes. */
    hostSetting: merged.tokenUrl.startsWith('/') ? ('baseUrl' as const) : ('service.tokenUrl' as const),
    token: token.split('.'),
    /** Path of its life in seconds; null: the answer has none. */
    lifetime: lifetime?.split('.') ?? null,
    /** Path of the instant of its end; null: the answer has none. */
    expires: expires?.split('.') ?? null,
    /** Answers that refuse the account for good. */
    refusals: refusals.map(({ in: at, ...refusal }): ServiceRefusal => ({
      ...refusal,
      in: at?.split('.') ?? null,
    })),
    /** Statuses by which the API, not the token endpoint, says that a token is refused. */
    refusedBy: [...new Set<number>(refusedBy)],
    /** How the API wants the token. */
    use,
    /** What makes it another service, as one canonical text without secrets; null: it is the standard service. */
    description: descriptionOf(described, baseUrl),
  }
}

/** The rules between keys. */
function checkKeys(
  {
    isUrlMissing,
    lifetime,
    expires,
    send,
    assertion,
    refusals,
  }: {
    isUrlMissing: boolean
    lifetime: unknown
    expires: unknown
    send: Described['send']
    assertion: unknown
    refusals: readonly { status: number; in: unknown }[]
  },
  fault: Diagnostics['fault'],
): void {
  if (isUrlMissing)
    fault(
      'service.tokenUrl',
      'is missing, and the preset "oauth2" needs it: write it as "/oauth/token" or "https://auth.example.com/oauth/token"',
    )
  if (lifetime !== null && expires !== null)
    fault(
      'service.expires',
      'is set beside service.lifetime (the preset "oauth2" sets that, too): set one of the two to null',
    )
  if ((send === 'assertion') !== (assertion !== null))
    fault(
      'service.assertion',
      send === 'assertion'
        ? 'is missing, and "send": "assertion" needs it: write it as { "key": { "file": "assertion.pem" } }'
        : 'is of use with "send": "assertion" only: set that, or leave it out',
    )
  refusals.forEach(({ status, in: at }, index) => {
    if (status < 300 && at === null)
      fault(
        `service.refusals[${index}].in`,
        'is missing: a status under 300 is a refusal only by words at one place',
      )
  })
}

/** Names under which people send secrets. */
export const NAME_OF_SECRET = /key|secret|token|password/i

function valuesOf(
  group: 'parameters' | 'headers',
  given: NonNullable<Given['parameters']>,
  { warn }: Diagnostics,
): Values {
  const entries = Object.entries(given).map(([name, value]) => {
    const at = keyPath(['service', group, name])
    if (typeof value === 'string' && NAME_OF_SECRET.test(name))
      warn(
        at,
        'is a secret by its name, and in the clear: write it into a file and name that as { "file": PATH } (or { "credential": NAME }, { "env": NAME })',
      )
    return [name, typeof value === 'object' ? { secretAt: at } : value] as const
  })
  return Object.fromEntries(entries)
}

/** The service of the interface description at this base URL. */
export function standardService(baseUrl = 'https://api.example.com'): ReturnType<typeof resolveService> {
  return resolveService(null, { baseUrl, diagnostics: silent })
}

/** RFC 9110, sections 5.1 and 5.5: a token; visible characters, blanks and tabs within. */
const HEADER_NAME = /^[\w!#$%&'*+.^`|~-]+$/
const HEADER_VALUE = /^(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?$/
const NO_HEADER_NAME = 'is no name of an HTTP header: write it as "X-Client"'
/** Headers that the request itself decides. */
const OWN_HEADER =
  /^(?:host|connection|content-.*|transfer-encoding|accept-encoding|expect|keep-alive|proxy-.*|te|trailer|upgrade)$/i

function checkNames(
  { send, names, parameters }: Described,
  { isGiven, fault }: { isGiven: boolean; fault: Diagnostics['fault'] },
): void {
  if (!HAS_NAMES.has(send)) {
    if (isGiven)
      fault(
        'service.names',
        `is of no use with "send": "${send}": leave it out, or set "send" to "form" or "json"`,
      )
    return
  }
  const taken = Object.values(names).filter((name) => name !== null)
  if (new Set(taken).size < taken.length)
    fault('service.names', 'gives key and secret one name: name two fields of the request')
  if (send === 'headers') return
  for (const name of Object.keys(parameters))
    if (taken.includes(name))
      fault(
        keyPath(['service', 'parameters', name]),
        'has the name under which the key or the secret is sent: remove it, or change service.names',
      )
}

/** No sentence quotes a value. */
function checkHeaders({ send, names, headers }: Described, fault: Diagnostics['fault']): void {
  const seen = new Set<string>()
  const check = (at: string, name: string, value: Value): void => {
    const problem =
      headerProblem(name, seen) ?? (typeof value === 'object' ? undefined : headerValueProblem(String(value)))
    seen.add(name.toLowerCase())
    if (problem !== undefined) fault(at, problem)
  }
  if (send === 'headers')
    for (const [which, name] of Object.entries(names))
      if (name !== null) check(`service.names.${which}`, name, '')
  for (const [name, value] of Object.entries(headers)) {
    const at = keyPath(['service', 'headers', name])
    if (/^authorization$/i.test(name))
      fault(at, 'is a header that kyc-tokend sets by itself: remove it, and see service.send')
    else check(at, name, value)
  }
}

function headerProblem(name: string, seen: ReadonlySet<string>): string | undefined {
  if (!HEADER_NAME.test(name)) return NO_HEADER_NAME
  if (OWN_HEADER.test(name)) return 'is a header that kyc-tokend sets by itself: remove it'
  return seen.has(name.toLowerCase()) ? 'is there twice, in other letters: remove one of the two' : undefined
}

export function headerValueProblem(value: string): string | undefined {
  if (HEADER_VALUE.test(value)) return undefined
  return 'has a value that an HTTP header cannot have: write visible characters, and blanks only within'
}

function descriptionOf(described: Described, baseUrl: string): string | null {
  const { tokenUrl } = described
  const path = tokenUrl.startsWith(`${baseUrl}/`) ? tokenUrl.slice(baseUrl.length) : tokenUrl
  const text = canonical({ ...described, tokenUrl: path })
  return text === canonical(STANDARD) ? null : text
}

/** The same text as in 1.2.0 for what that version had. */
function canonical({ tokenUrl, send, names, parameters, headers, token, assertion }: Described): string {
  const sorted = (fields: Values, nameOf = (name: string): string => name) =>
    Object.entries(fields)
      .map(([name, value]) => [nameOf(name), value] as const)
      .toSorted(([one], [other]) => (one < other ? -1 : 1))
  const sent = HAS_NAMES.has(send) ? [names.apiKey, names.apiSecret] : null
  const headersSent = sorted(headers, (name) => name.toLowerCase())
  const whole = [tokenUrl, send, sent, sorted(parameters), headersSent, token]
  return JSON.stringify(assertion === null ? whole : [...whole, assertion])
}
