// The rules between settings, as rows: broken, key path, sentence. No sentence quotes a value.
import { keyPath } from './faults.ts'
import type { ServiceSettings, Settings } from './schema.ts'
import { isLoopbackHost } from './urls.ts'

export type Rule = readonly [isBroken: boolean, at: string, sentence: string]

/** The rows of all rules. */
export function rulesOf(settings: Settings, service: ServiceSettings): Rule[] {
  const { request, tokenFiles, share } = settings
  const { user = null, password = null } = request.proxy || {}
  const noFile = request.trust === 'file' && request.caFile === null
  return [
    [noFile, 'request.caFile', 'is missing beside "trust": "file": name a PEM file of authorities'],
    [user === null && password !== null, 'request.proxy.user', 'is missing beside the password: set both'],
    [user?.includes(':') ?? false, 'request.proxy.user', 'must not hold a ":": HTTP Basic ends a user by it'],
    ...tokenFiles.map(({ format, template }, index): Rule => {
      const isBroken = (format === 'template') !== (template !== null)
      return [isBroken, `tokenFiles[${index}].template`, 'and "format": "template" need each other: set both']
    }),
    ...headerRules(service),
    ...pairRules(settings, service),
    ...(share === null ? [] : shareRules(share)),
  ]
}

/** RFC 9110, section 5.1. */
const HEADER_NAME = /^[\w!#$%&'*+.^`|~-]+$/
/** Headers that HTTP decides, or that the daemon sets. */
const OWN_HEADER =
  /^(?:host|connection|(?:content|proxy)-.*|(?:transfer|accept)-encoding|expect|te|trailer|upgrade)$/i

function headerRules({ send, names, headers, use }: ServiceSettings): Rule[] {
  const ofPair = send === 'headers' ? [names.apiKey, names.apiSecret].filter((name) => name !== null) : []
  const written = Object.keys(headers)
  const authorization = written.find((name) => /^authorization$/i.test(name))
  const rows = [
    ['service.use.header', use.header] as const,
    ...ofPair.map((name) => ['service.names', name] as const),
    ...written.map((name) => [keyPath(['service', 'headers', name]), name] as const),
  ]
  return [
    [authorization !== undefined, `service.headers.${authorization}`, 'is for service.send: remove it'],
    ...rows.flatMap(([at, name]): Rule[] => [
      [!HEADER_NAME.test(name), at, 'is no name of an HTTP header: write it as "X-Client"'],
      [OWN_HEADER.test(name), at, 'is a header that HTTP itself decides: remove it, or name another'],
    ]),
  ]
}

/** Fields of a JWT's head with a setting of their own, or that change what is signed (RFC 7515, RFC 7797). */
const OWN_FIELDS = ['alg', 'kid', 'crit', 'b64']

/** All that makes the request is there, and nothing beside it. */
function pairRules(
  { credentials }: Settings,
  { send, names, parameters, assertion }: ServiceSettings,
): Rule[] {
  const { key = null, file = null, as, header = {} } = assertion ?? {}
  const isSigned = send === 'assertion'
  const hasNames = ['json', 'form', 'headers'].includes(send)
  const isSecretSent = hasNames ? names.apiSecret !== null : !isSigned
  const noKey = credentials.apiKey === null && !(isSigned && file !== null)
  const own = OWN_FIELDS.find((field) => Object.hasOwn(header, field))
  const isTwice = names.apiKey !== null && names.apiKey === names.apiSecret
  const sent = send === 'json' || send === 'form' ? Object.values(names) : []
  const taken = Object.keys(parameters).find((name) => sent.includes(name))
  return [
    [noKey, 'credentials.apiKey', 'is null, which only a ready-made assertion allows: give it'],
    [
      credentials.apiSecret === null && isSecretSent,
      'credentials.apiSecret',
      'is null, and is sent: give it',
    ],
    [hasNames && isTwice, 'service.names', 'gives key and secret one name: name two fields'],
    [taken !== undefined, `service.parameters.${taken}`, 'has a name of service.names: change one of them'],
    [
      isSigned !== (assertion !== null),
      'service.assertion',
      'and "send": "assertion" need each other: set both',
    ],
    [assertion !== null && (key === null) === (file === null), 'service.assertion', 'needs a key, or a file'],
    [file === null && as === 'exchange', 'service.assertion.as', 'is "exchange", which needs a file: set it'],
    [own !== undefined, `service.assertion.header.${own}`, 'is not free: leave it out'],
  ]
}

function shareRules(share: NonNullable<Settings['share']>): Rule[] {
  const { servers, sentinel, cluster, database, asks, whenAlone, tls } = share
  const hasSocket = servers.some((server) => 'path' in server)
  const isSeveral = sentinel !== null || cluster
  const isAlone = servers.length === 1 && !(hasSocket && isSeveral)
  const { certFile = null, key = null } = typeof tls === 'object' ? tls : {}
  const clear = 'is false, and the password would cross the network in the clear: set it, or no password'
  return [
    [
      !isAlone && (hasSocket || !isSeveral),
      'share.servers',
      'are several, and no sentinels or nodes: name one',
    ],
    [sentinel !== null && cluster, 'share.cluster', 'is true beside share.sentinel: set one of them'],
    [cluster && database !== 0, 'share.database', 'is not 0, and a cluster has no other: leave it out'],
    [
      !asks && whenAlone === 'fetch',
      'share.asks',
      'is false beside "whenAlone": "fetch": set that to "wait"',
    ],
    [isExposed(share), 'share.tls', clear],
    [
      (certFile === null) !== (key === null),
      'share.tls',
      'needs certFile and key together: set both, or none',
    ],
  ]
}

function isExposed({ servers, tls, password, sentinel }: NonNullable<Settings['share']>): boolean {
  const isAway = servers.some((server) => 'host' in server && !isLoopbackHost(server.host))
  return tls === false && isAway && (password ?? sentinel?.password ?? null) !== null
}
