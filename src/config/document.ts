// Checks a document: its shape, with what takes the place of keys and values of 2.x, and the rules between settings.
import * as v from 'valibot'
import { isRecord } from '../lib/input.ts'
import { keyPath, type ConfigIssue } from './faults.ts'
import { HEADER_NAME, isLoopbackHost } from './kinds.ts'
import { configSchema, type Settings } from './schema.ts'

/** Keys that are gone since 2.x. */
const GONE: Readonly<Record<string, string>> = {
  'ipc.path': 'remove it; the socket is in runtimeDirectory, in the unit at ListenStream=',
  'http.path': 'remove it; the socket is in runtimeDirectory, in the unit at ListenStream=',
  'service.expires': 'name the life in seconds as service.lifetime',
  'share.host': 'remove it; a host is known by the name that `hostname` prints',
  'share.tls.keyFile': 'write share.tls.key as { "file": PATH }',
}

/** The settings, or the faults of the document's shape: one for each key path, without any value. */
export function validateDocument(document: unknown) {
  const { output, issues, success } = v.safeParse(configSchema(), withPreset(document), {
    abortPipeEarly: true,
  })
  const faults = (issues ?? []).map(({ path = [], message }): ConfigIssue => {
    const at = keyPath(path.map(({ key }) => key as PropertyKey))
    return { at, sentence: Object.hasOwn(GONE, at) ? `is gone: ${GONE[at]}` : message }
  })
  return success ? { faults, settings: output } : { faults }
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
  const merged = { ...OAUTH2, ...(isGrant && { parameters: {} }), ...given }
  const allNames = isRecord(names) ? { ...OAUTH2_NAMES, ...names } : names
  return { ...(document as object), service: { ...merged, names: allNames } }
}

type Rule = readonly [isBroken: boolean, at: string, sentence: string]

/** The faults between settings: without these rules a setting would be ignored, or each request fail. */
export function faultsBetween(settings: Settings): ConfigIssue[] {
  const { request, tokenFiles } = settings
  const { user = null, password = null } = request.proxy || {}
  const noFile = request.trust === 'file' && request.caFile === null
  const rows: Rule[] = [
    [noFile, 'request.caFile', 'is missing beside "trust": "file": name a PEM file of authorities'],
    [user === null && password !== null, 'request.proxy.user', 'is missing beside the password: set both'],
    ...tokenFiles.map(({ format, template }, index): Rule => {
      const isBroken = (format === 'template') !== (template !== null)
      return [isBroken, `tokenFiles[${index}].template`, 'and "format": "template" need each other: set both']
    }),
    ...pairRules(settings),
    ...shareRules(settings),
  ]
  return rows.filter(([isBroken]) => isBroken).map(([, at, sentence]) => ({ at, sentence }))
}

function pairRules({ credentials, service: { send, names, headers, assertion } }: Settings): Rule[] {
  const { key = null, file = null, as } = assertion ?? {}
  const isSigned = send === 'assertion'
  const hasNames = ['json', 'form', 'headers'].includes(send)
  const noKey = credentials.apiKey === null && !(isSigned && file !== null)
  const noSecret = credentials.apiSecret === null && (hasNames ? names.apiSecret !== null : !isSigned)
  const isNoHeader = Object.values(names).some((name) => name !== null && !HEADER_NAME.test(name))
  const isLogin = Object.keys(headers).some((name) => /^authorization$/i.test(name))
  return [
    [noKey, 'credentials.apiKey', 'is null, which only a ready-made assertion allows: give it'],
    [noSecret, 'credentials.apiSecret', 'is null, and is sent: give it'],
    [send === 'headers' && isNoHeader, 'service.names', 'must be names of headers that HTTP leaves free'],
    [isLogin, 'service.headers.Authorization', 'is for service.send: remove it'],
    [isSigned !== (assertion !== null), 'service.assertion', 'and "send": "assertion" need each other'],
    [assertion !== null && (key === null) === (file === null), 'service.assertion', 'needs a key, or a file'],
    [file === null && as === 'exchange', 'service.assertion.as', 'is "exchange", which needs a file: set it'],
  ]
}

/** How a key for the seal is made. */
export const MAKE_KEY = 'make one with `openssl rand -hex 32`, the same on all hosts'

function shareRules({ share, credentials, ...settings }: Settings): Rule[] {
  if (share === null) return []
  const { servers, sentinel, cluster, asks, whenAlone, tls, key } = share
  const most = sentinel !== null || cluster ? 64 : 1
  const isMixed = servers.some((server) => 'path' in server) && (most > 1 || servers.length > 1)
  const parts = typeof tls === 'object' ? [tls.certFile, tls.key].filter((part) => part !== null) : []
  const hasSecret = (credentials.apiSecret ?? settings.service.assertion?.key ?? null) !== null
  return [
    [servers.length > most || isMixed, 'share.servers', 'are several, and no sentinels or nodes: name one'],
    [!asks && whenAlone === 'fetch', 'share.asks', 'is false: set "whenAlone": "wait" beside it'],
    [isExposed(share), 'share.tls', 'is false, and the password would cross the network: set it'],
    [parts.length === 1, 'share.tls', 'needs certFile and key together: set both, or none'],
    [key === null && !hasSecret, 'share.key', `is missing, and the account has no secret: ${MAKE_KEY}`],
  ]
}

function isExposed({ servers, tls, password, sentinel }: NonNullable<Settings['share']>): boolean {
  const isAway = servers.some((server) => 'host' in server && !isLoopbackHost(server.host))
  return tls === false && isAway && (password ?? sentinel?.password ?? null) !== null
}
