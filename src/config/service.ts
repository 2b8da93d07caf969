// The described service (`service`): the standard one, the preset, the rules across its keys, and the compiled description.

import type { ServiceConfig } from './config.ts'
import { keyPath, type Diagnostics } from './issues.ts'
import { ENDPOINT, tokenUrlOf } from './base-url.ts'
import type { ValidPart } from './validate.ts'

type ServiceInput = NonNullable<ValidPart['service']>
type Whole = { readonly [Key in keyof ServiceInput]-?: Exclude<ServiceInput[Key], undefined> }

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

/** By name of the preset. */
const presets = {
  /** The client credentials grant (RFC 6749, section 4.4). */
  oauth2: {
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
  },
} as const
export const presetNames = ['oauth2'] as const

/** The compiled description; null: of the standard service. Its faults go to the diagnostics. */
export function resolveService(
  input: ServiceInput | null,
  { baseUrl, diagnostics }: { baseUrl: string; diagnostics: Diagnostics },
): ServiceConfig {
  const given = present(input ?? {}) as Partial<Whole>
  const { [given.preset ?? 'none']: preset = {} }: Record<string, Partial<typeof presets.oauth2>> = presets
  const merged: Omit<Whole, 'preset'> = { ...STANDARD, ...preset, ...given }
  const { send, token, lifetime, tokenUrl, refusals, refusedBy } = merged
  const { apiKey, apiSecret } = preset.names ?? STANDARD.names
  const fields = {
    names: { apiKey: given.names?.apiKey ?? apiKey, apiSecret: given.names?.apiSecret ?? apiSecret },
    parameters: present(merged.parameters) as Record<string, string>,
    headers: present(merged.headers) as Record<string, string>,
  }
  if (given.preset === 'oauth2' && given.tokenUrl === undefined)
    diagnostics.fault(
      'service.tokenUrl',
      'is missing, and the preset "oauth2" needs it: write it as "/oauth/token" or "https://auth.example.com/oauth/token"',
    )
  if (send === 'basic' && given.names !== undefined)
    diagnostics.fault(
      'service.names',
      'is of no use with "send": "basic": leave it out, or set "send" to "form" or "json"',
    )
  checkFields({ send, ...fields }, diagnostics)
  const described = { send, token, ...fields, tokenUrl: tokenUrlOf(baseUrl, tokenUrl) }
  return {
    ...described,
    token: token.split('.'),
    lifetime: lifetime?.split('.') ?? null,
    refusals: refusals.flatMap((refusal) => {
      const { status, says, in: at, reason } = refusal ?? {}
      if (status === undefined || says === undefined || reason === undefined) return []
      return { status, says, in: at?.split('.') ?? null, reason, isStrict: refusals === STANDARD.refusals }
    }),
    refusedBy: [...new Set(refusedBy)].filter((status) => status !== undefined),
    description: descriptionOf(described, baseUrl),
  }
}

/** The service of the interface description at this base URL. */
export function standardService(baseUrl = 'https://api.example.com'): ServiceConfig {
  return resolveService(null, { baseUrl, diagnostics: { fault: () => undefined, warn: () => undefined } })
}

/** Without what was found faulty. */
function present(fields: object): object {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined))
}

type Fields = Pick<ServiceConfig, 'send' | 'names' | 'parameters' | 'headers'>

/** RFC 9110, sections 5.1 and 5.5: a token; visible characters, blanks and tabs within. */
const HEADER_NAME = /^[\w!#$%&'*+.^`|~-]+$/
const HEADER_VALUE = /^(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?$/
/** Headers that the request itself decides. */
const OWN_HEADER =
  /^(?:authorization|host|connection|content-.*|transfer-encoding|accept-encoding|expect|keep-alive|proxy-.*|te|trailer|upgrade)$/i

/** Sentences never have a value, and keys only as a key path has them. */
function checkFields({ send, names, parameters, headers }: Fields, { fault }: Diagnostics): void {
  const { apiKey, apiSecret } = names
  if (send !== 'basic') {
    if (apiKey === apiSecret)
      fault('service.names', 'gives the key and the secret one name: name two fields of the request')
    for (const name of Object.keys(parameters))
      if (name === apiKey || name === apiSecret)
        fault(
          keyPath(['service', 'parameters', name]),
          'has the name under which the key or the secret is sent: remove it, or change service.names',
        )
  }
  const seen = new Set<string>()
  for (const [name, value] of Object.entries(headers)) {
    const problem = headerProblem(name, value, seen)
    if (problem !== undefined) fault(keyPath(['service', 'headers', name]), problem)
    seen.add(name.toLowerCase())
  }
}

function headerProblem(name: string, value: string, seen: ReadonlySet<string>): string | undefined {
  if (!HEADER_NAME.test(name)) return 'is no name of an HTTP header: write it as "X-Client"'
  if (OWN_HEADER.test(name)) return 'is a header that kyc-tokend sets by itself: remove it'
  if (seen.has(name.toLowerCase())) return 'is there twice, in other letters: remove one of the two'
  if (HEADER_VALUE.test(value)) return undefined
  return 'has a value that an HTTP header cannot have: write visible characters, and blanks only within'
}

type Described = Fields & { readonly tokenUrl: string; readonly token: string }

/** Everything by which the service differs from the standard one, as one text; null: nothing. */
function descriptionOf(described: Described, baseUrl: string): string | null {
  const { tokenUrl } = described
  const path = tokenUrl.startsWith(`${baseUrl}/`) ? tokenUrl.slice(baseUrl.length) : tokenUrl
  const text = canonical({ ...described, tokenUrl: path })
  return text === canonical(STANDARD) ? null : text
}

function canonical({ tokenUrl, send, names, parameters, headers, token }: Described): string {
  const sorted = (fields: Readonly<Record<string, string>>, nameOf = (name: string): string => name) =>
    Object.entries(fields)
      .map(([name, value]) => [nameOf(name), value] as const)
      .toSorted(([one], [other]) => (one < other ? -1 : 1))
  const sent = send === 'basic' ? null : [names.apiKey, names.apiSecret]
  const headersSent = sorted(headers, (name) => name.toLowerCase())
  return JSON.stringify([tokenUrl, send, sent, sorted(parameters), headersSent, token])
}
