// Checks a document: its shape, with what takes the place of keys and values of 2.x, and the rules between settings.
import * as v from 'valibot'
import { isRecord } from '../lib/input.ts'
import { keyPath, type ConfigIssue } from './faults.ts'
import { isLoopbackHost } from './kinds.ts'
import { configSchema, service, type Settings } from './schema.ts'

/** Keys that are gone since 2.x. */
const GONE: Readonly<Record<string, string>> = {
  'ipc.path': 'remove it; the socket is in runtimeDirectory, in the unit at ListenStream= of its socket unit',
  'http.path':
    'remove it; the socket is in runtimeDirectory, in the unit at ListenStream= of its socket unit',
  'service.expires': 'name the life in seconds as service.lifetime',
  'share.host': 'remove it; a host is known by the name that `hostname` prints',
  'share.tls.keyFile': 'write share.tls.key as { "file": PATH }',
}

/** The settings, or the faults of the document's shape: one for each key path, without any value. */
export function validateDocument(document: unknown): {
  faults: ConfigIssue[]
  settings: Settings | undefined
} {
  const { output, issues, success } = v.safeParse(configSchema(), withPreset(document), {
    abortPipeEarly: true,
  })
  const faults = (issues ?? []).map(({ path = [], message }): ConfigIssue => {
    const at = keyPath(path.map(({ key }) => key as PropertyKey))
    return { at, sentence: Object.hasOwn(GONE, at) ? `is gone: ${GONE[at]}` : message }
  })
  const settings = success ? { ...output, service: output.service ?? v.parse(service(), {}) } : undefined
  return { faults, settings }
}

/** The client credentials grant (RFC 6749, section 4.4). */
const OAUTH2 = {
  // Is to be given.
  tokenUrl: null,
  send: 'basic',
  parameters: { grant_type: 'client_credentials' },
  token: 'access_token',
  lifetime: 'expires_in',
  refusals: [400, 401].flatMap((status) => [
    { status, says: 'invalid_client', in: 'error', reason: 'account-not-found' },
    { status, says: 'unauthorized_client', in: 'error', reason: 'account-inactive' },
  ]),
}
/** Of use with another `send` (section 2.3.1). */
const OAUTH2_NAMES = { apiKey: 'client_id', apiSecret: 'client_secret' }

/** The document with the defaults of its preset below its own keys. */
function withPreset(document: unknown): unknown {
  const given = isRecord(document) ? document['service'] : undefined
  if (!isRecord(given) || given['preset'] !== 'oauth2') return document
  const { names = {}, assertion } = given
  // An assertion that is the grant has a `grant_type` of its own.
  const isGrant = isRecord(assertion) && ['grant', 'exchange'].includes(String(assertion['as']))
  const merged = {
    ...OAUTH2,
    ...(isGrant && { parameters: {} }),
    ...given,
    names: isRecord(names) ? { ...OAUTH2_NAMES, ...names } : names,
  }
  return { ...(document as object), service: merged }
}

/** The faults between settings: without these rules a setting would be ignored, or each request fail. */
export function faultsBetween(settings: Settings): ConfigIssue[] {
  const { request, tokenFiles } = settings
  const { user = null, password = null } = request.proxy || {}
  const rows: Rule[] = [
    [
      request.trust === 'file' && request.caFile === null,
      'request.caFile',
      'is missing beside "trust": "file": name a PEM file of authorities',
    ],
    [user === null && password !== null, 'request.proxy.user', 'is missing beside the password: set both'],
    ...tokenFiles.map(({ format, template }, index): Rule => {
      const isBroken = (format === 'template') !== (template !== null)
      return [isBroken, `tokenFiles[${index}].template`, 'and "format": "template" need each other: set both']
    }),
    ...headerRules(settings.service),
    ...pairRules(settings),
    ...shareRules(settings),
  ]
  return rows.filter(([isBroken]) => isBroken).map(([, at, sentence]) => ({ at, sentence }))
}

type Rule = readonly [isBroken: boolean, at: string, sentence: string]

/** RFC 9110, section 5.1. */
const HEADER_NAME = /^[\w!#$%&'*+.^`|~-]+$/
/** Headers that HTTP decides, or that the daemon sets. */
const OWN_HEADER =
  /^(?:host|connection|(?:content|proxy)-.*|(?:transfer|accept)-encoding|expect|te|trailer|upgrade)$/i

function headerRules({ send, names, headers, use }: Settings['service']): Rule[] {
  const ofPair = send === 'headers' ? [names.apiKey, names.apiSecret].filter((name) => name !== null) : []
  const written = Object.keys(headers).map((name) => [keyPath(['service', 'headers', name]), name] as const)
  const all = [
    ['service.use.header', use.header] as const,
    ...ofPair.map((name) => ['service.names', name] as const),
    ...written,
  ]
  const isFree = (name: string): boolean => HEADER_NAME.test(name) && !OWN_HEADER.test(name)
  return [
    ...written.map(([at, name]): Rule => [
      /^authorization$/i.test(name),
      at,
      'is for service.send: remove it',
    ]),
    ...all.map(([at, name]): Rule => {
      const sentence =
        'is no name of a header, or one that HTTP itself decides: name another, such as "X-Client"'
      return [!isFree(name), at, sentence]
    }),
  ]
}

/** All that makes the request is there. */
function pairRules({ credentials, service: { send, names, assertion } }: Settings): Rule[] {
  const { key = null, file = null, as } = assertion ?? {}
  const isSigned = send === 'assertion'
  const hasNames = ['json', 'form', 'headers'].includes(send)
  const isSecretSent = hasNames ? names.apiSecret !== null : !isSigned
  const noKey = credentials.apiKey === null && !(isSigned && file !== null)
  const noSecret = credentials.apiSecret === null && isSecretSent
  const isHalf = isSigned !== (assertion !== null)
  return [
    [noKey, 'credentials.apiKey', 'is null, which only a ready-made assertion allows: give it'],
    [noSecret, 'credentials.apiSecret', 'is null, and is sent: give it'],
    [isHalf, 'service.assertion', 'and "send": "assertion" need each other: set both'],
    [assertion !== null && (key === null) === (file === null), 'service.assertion', 'needs a key, or a file'],
    [file === null && as === 'exchange', 'service.assertion.as', 'is "exchange", which needs a file: set it'],
  ]
}

/** How a key for the seal is made. */
export const MAKE_KEY = 'make one with `openssl rand -hex 32`, the same on all hosts'

function shareRules({ share, credentials, service }: Settings): Rule[] {
  if (share === null) return []
  const { servers, sentinel, cluster, asks, whenAlone, tls, key, password } = share
  const hasSocket = servers.some((server) => 'path' in server)
  const isSeveral = sentinel !== null || cluster
  const isAmbiguous = hasSocket ? servers.length > 1 || isSeveral : servers.length > 1 && !isSeveral
  const isAway = servers.some((server) => 'host' in server && !isLoopbackHost(server.host))
  const isExposed = tls === false && isAway && (password ?? sentinel?.password ?? null) !== null
  const own = typeof tls === 'object' ? [tls.certFile, tls.key] : []
  const isHalf = own.filter((part) => part === null).length === 1
  const hasSecret = (credentials.apiSecret ?? service.assertion?.key ?? null) !== null
  return [
    [isAmbiguous, 'share.servers', 'are several, and no sentinels or nodes: name one'],
    [
      !asks && whenAlone === 'fetch',
      'share.asks',
      'is false beside "whenAlone": "fetch": set that to "wait"',
    ],
    [
      isExposed,
      'share.tls',
      'is false, and the password would cross the network in the clear: set it, or no password',
    ],
    [isHalf, 'share.tls', 'needs certFile and key together: set both, or none'],
    [
      key === null && !hasSecret,
      'share.key',
      `is missing, and the account has no secret for the seal: ${MAKE_KEY}`,
    ],
  ]
}
