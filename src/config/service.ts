// The described service (`service`): the rules between its keys, and the description that the program uses.
import { ENDPOINT } from './base-url.ts'
import { createDiagnostics, keyPath, type Diagnostics } from './issues.ts'
import { isSame, NAME_OF_SECRET } from '../lib/secret.ts'
import { checkAssertion } from './assertion-rules.ts'
import { defaultsOf, standardSettings } from './schema-service.ts'
import type { Settings } from './schema.ts'

/** A value of a field or a header that is a secret: its key path in `Credentials.further`. */
interface SecretReference {
  readonly secretAt: string
}
export type Value = string | number | boolean | SecretReference
type Values = Readonly<Record<string, Value>>
type ServiceSettings = Omit<Settings['service'], 'preset'>
type Fault = Diagnostics['fault']

/** The keys that make it another service, even at the same `baseUrl`. */
interface Described extends Pick<ServiceSettings, 'send' | 'names' | 'token'> {
  /** The whole URL of the token endpoint. */
  readonly tokenUrl: string
  /** Further fields. */
  readonly parameters: Values
  readonly headers: Values
  readonly assertion: ReturnType<typeof withoutKey> | null
}

/** Key and secret are fields or headers; else they are HTTP Basic, or the issuer of an assertion. */
export const hasNames = ({ send }: Pick<ServiceSettings, 'send'>): boolean =>
  send === 'json' || send === 'form' || send === 'headers'

/** Resolves `service`: its request, and how its answers are read. */
export function resolveService(
  { preset, ...settings }: Settings['service'],
  { baseUrl, diagnostics }: { baseUrl: string; diagnostics: Diagnostics },
) {
  const isPath = settings.tokenUrl.startsWith('/')
  const described: Described = {
    tokenUrl: new URL(isPath ? baseUrl + settings.tokenUrl : settings.tokenUrl).href,
    send: settings.send,
    names: settings.names,
    parameters: valuesOf('parameters', settings.parameters, diagnostics),
    headers: valuesOf('headers', settings.headers, diagnostics),
    token: settings.token,
    assertion: settings.assertion && withoutKey(settings.assertion),
  }
  checkKeys(settings, diagnostics.fault)
  checkAssertion(settings, diagnostics)
  checkNames(described, { standard: defaultsOf(preset).names, fault: diagnostics.fault })
  checkHeaders(described, diagnostics.fault)
  return {
    ...settings,
    ...described,
    /** The setting from which the host of `tokenUrl` comes. */
    hostSetting: isPath ? ('baseUrl' as const) : ('service.tokenUrl' as const),
    /** What makes it another service, as a canonical text without secrets; null: it is the standard one. */
    description: descriptionOf(described, baseUrl),
  }
}

/** The key is one of the credentials. */
function withoutKey({ key: _key, ...assertion }: NonNullable<ServiceSettings['assertion']>) {
  return assertion
}

/** The rules between keys. */
function checkKeys({ lifetime, expires, refusals, use }: ServiceSettings, fault: Fault): void {
  if (lifetime !== null && expires !== null)
    fault(
      'service.expires',
      'is set beside service.lifetime (the preset "oauth2" sets that, too): set one of the two to null',
    )
  if (!HEADER_NAME.test(use.header)) fault('service.use.header', NO_HEADER_NAME)
  else if (OWN_HEADER.test(use.header))
    fault(
      'service.use.header',
      'is a header by which HTTP itself works: name that in which the API wants the token',
    )
  for (const [index, refusal] of refusals.entries())
    if (refusal.status < 300 && refusal.in === null)
      fault(
        `service.refusals[${index}].in`,
        'is missing: a status under 300 is a refusal only by words at one place',
      )
}

function valuesOf(
  group: 'parameters' | 'headers',
  values: ServiceSettings['parameters'],
  { warn }: Diagnostics,
): Values {
  const entries = Object.entries(values).map(([name, value]) => {
    const at = keyPath(['service', group, name])
    if (typeof value === 'string' && NAME_OF_SECRET.test(name))
      warn(
        at,
        'is a secret by its name, and in the clear: write it into a file and name that as ' +
          '{ "file": PATH } (or { "credential": NAME }, { "env": NAME })',
      )
    return [name, typeof value === 'object' ? { secretAt: at } : value] as const
  })
  return Object.fromEntries(entries)
}

/** The service of the interface description at this base URL. */
export function standardService(baseUrl = 'https://api.example.com'): ReturnType<typeof resolveService> {
  return resolveService(standardSettings(), { baseUrl, diagnostics: createDiagnostics() })
}

/** RFC 9110, sections 5.1 and 5.5: a token; visible characters, blanks and tabs within. */
const HEADER_NAME = /^[\w!#$%&'*+.^`|~-]+$/
const HEADER_VALUE = /^(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?$/
const NO_HEADER_NAME = 'is no name of an HTTP header: write it as "X-Client"'
/** Headers that a message itself decides. */
const OWN_HEADER =
  /^(?:host|connection|(?:content|proxy)-.*|(?:transfer|accept)-encoding|expect|te|trailer|upgrade)$/i

function checkNames(
  { send, names, parameters }: Described,
  { standard, fault }: { standard: object; fault: Fault },
): void {
  if (!hasNames({ send })) {
    if (!isSame(names, standard))
      fault(
        'service.names',
        `is of no use with "send": "${send}": leave it out, or set "send" to "form" or "json"`,
      )
    return
  }
  const sent = Object.values(names).filter((name) => name !== null)
  if (new Set(sent).size < sent.length)
    fault('service.names', 'gives key and secret one name: name two fields of the request')
  if (send === 'headers') return
  for (const name of Object.keys(parameters))
    if (sent.includes(name))
      fault(
        keyPath(['service', 'parameters', name]),
        'has the name under which the key or the secret is sent: remove it, or change service.names',
      )
}

/** No sentence quotes a value. */
function checkHeaders({ send, names, headers }: Described, fault: Fault): void {
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
  const isBelow = described.tokenUrl.startsWith(`${baseUrl}/`)
  const tokenUrl = isBelow ? described.tokenUrl.slice(baseUrl.length) : described.tokenUrl
  const text = canonical({ ...described, tokenUrl })
  return text === STANDARD_TEXT ? null : text
}

/** The canonical text of the service of the interface description. */
const STANDARD_TEXT = `["${ENDPOINT}","json",["apiKey","apiSecret"],[],[],"accessToken"]`

/**
 * The same text as in former versions for what they had. A ready-made assertion is none of the pair, and
 * where its file is concerns this host alone.
 */
function canonical({ tokenUrl, send, names, parameters, headers, token, assertion }: Described): string {
  const sorted = (fields: Values, nameOf = (name: string): string => name) =>
    Object.entries(fields)
      .map(([name, value]) => [nameOf(name), value] as const)
      .toSorted(([one], [other]) => (one < other ? -1 : 1))
  const sent = hasNames({ send }) ? [names.apiKey, names.apiSecret] : null
  const headersSent = sorted(headers, (name) => name.toLowerCase())
  const whole = [tokenUrl, send, sent, sorted(parameters), headersSent, token.join('.')]
  if (assertion === null) return JSON.stringify(whole)
  const { file, as, type, header, ...signed } = assertion
  if (file !== null) return JSON.stringify([...whole, { as, type }])
  const { claims, ...facts } = signed
  const further = Object.keys(header).length === 0 ? {} : { header }
  return JSON.stringify([...whole, { ...facts, as, claims, ...further }])
}
