// The described service (`service`): the defaults, the rules across its keys, and the compiled description.
import type { PermanentReason } from '../token/outcome.ts'
import { tokenUrlOf } from './base-url.ts'
import { keyPath, silent, type Diagnostics } from './issues.ts'
import type { Settings } from './schema.ts'
import { OAUTH2, STANDARD } from './service-presets.ts'

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

/** An answer that refuses the account for good. */
export interface ServiceRefusal {
  readonly status: number
  /** Words that are looked for, case and white space aside. */
  readonly says: string
  /** Path of the text in the answer's JSON object; null: anywhere in the answer. */
  readonly in: readonly string[] | null
  readonly reason: PermanentReason
  /** A JSON object without a text at that path does not say them. */
  readonly isPathRequired: boolean
}

/** Resolves `service`: its request, and how its answers are read. `input` null: the standard service. */
export function resolveService(
  input: Settings['service'],
  { baseUrl, diagnostics: { fault } }: { baseUrl: string; diagnostics: Diagnostics },
) {
  const given: Partial<NonNullable<typeof input>> = input ?? {}
  const preset = given.preset === 'oauth2' ? OAUTH2 : undefined
  const merged = { ...STANDARD, ...preset, ...given }
  const { send, parameters, headers, token, lifetime, refusals, refusedBy } = merged
  const described: Described = {
    tokenUrl: tokenUrlOf(baseUrl, merged.tokenUrl),
    send,
    names: { ...STANDARD.names, ...preset?.names, ...given.names },
    parameters,
    headers,
    token,
  }
  if (preset !== undefined && given.tokenUrl === undefined)
    fault(
      'service.tokenUrl',
      'is missing, and the preset "oauth2" needs it: write it as "/oauth/token" or "https://auth.example.com/oauth/token"',
    )
  checkNames(described, { isGiven: given.names !== undefined, fault })
  checkHeaders(headers, fault)
  return {
    ...described,
    /** The setting from which the host of `tokenUrl` comes. */
    hostSetting: merged.tokenUrl.startsWith('/') ? ('baseUrl' as const) : ('service.tokenUrl' as const),
    token: token.split('.'),
    /** Path of its life in seconds; null: the answer has none. */
    lifetime: lifetime?.split('.') ?? null,
    /** Answers that refuse the account for good. */
    refusals: refusals.map(({ in: at, ...refusal }): ServiceRefusal => {
      return { ...refusal, in: at?.split('.') ?? null, isPathRequired: refusals === STANDARD.refusals }
    }),
    /** Statuses by which the API, not the token endpoint, says that a token is refused. */
    refusedBy: [...new Set<number>(refusedBy)],
    /** All of that as one canonical text; null: it is the standard service. */
    description: descriptionOf(described, baseUrl),
  }
}

/** The service of the interface description at this base URL. */
export function standardService(baseUrl = 'https://api.example.com'): ReturnType<typeof resolveService> {
  return resolveService(null, { baseUrl, diagnostics: silent })
}

/** RFC 9110, sections 5.1 and 5.5: a token; visible characters, blanks and tabs within. */
const HEADER_NAME = /^[\w!#$%&'*+.^`|~-]+$/
const HEADER_VALUE = /^(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?$/
/** Headers that the request itself decides. */
const OWN_HEADER =
  /^(?:authorization|host|connection|content-.*|transfer-encoding|accept-encoding|expect|keep-alive|proxy-.*|te|trailer|upgrade)$/i

function checkNames(
  { send, names, parameters }: Described,
  { isGiven, fault }: { isGiven: boolean; fault: Diagnostics['fault'] },
): void {
  if (send === 'basic') {
    if (isGiven)
      fault(
        'service.names',
        'is of no use with "send": "basic": leave it out, or set "send" to "form" or "json"',
      )
    return
  }
  if (names.apiKey === names.apiSecret)
    fault('service.names', 'gives key and secret one name: name two fields of the request')
  for (const name of Object.keys(parameters))
    if (Object.values(names).includes(name))
      fault(
        keyPath(['service', 'parameters', name]),
        'has the name under which the key or the secret is sent: remove it, or change service.names',
      )
}

/** No sentence quotes a value. */
function checkHeaders(headers: Texts, fault: Diagnostics['fault']): void {
  const seen = new Set<string>()
  for (const [name, value] of Object.entries(headers)) {
    const problem = headerProblem(name, value, seen)
    seen.add(name.toLowerCase())
    if (problem !== undefined) fault(keyPath(['service', 'headers', name]), problem)
  }
}

function headerProblem(name: string, value: string, seen: ReadonlySet<string>): string | undefined {
  if (!HEADER_NAME.test(name)) return 'is no name of an HTTP header: write it as "X-Client"'
  if (OWN_HEADER.test(name)) return 'is a header that kyc-tokend sets by itself: remove it'
  if (seen.has(name.toLowerCase())) return 'is there twice, in other letters: remove one of the two'
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
