// Checks the shape of a document: all faults at once, those of keys and values of 2.x with what takes their place.
import * as v from 'valibot'
import { isRecord } from '../lib/input.ts'
import { keyPath, type ConfigIssue } from './faults.ts'
import { configSchema, type Settings } from './schema.ts'
import { TOKEN_URL_SHAPE } from './urls.ts'

/** What is gone since 2.x, by key path, with the sentence. `isGone`: of a value that is gone; else the key is. */
const GONE: readonly (readonly [at: RegExp, sentence: string, isGone?: (value: unknown) => boolean])[] = [
  [
    /^(?:ipc|http)\.path$/,
    'is gone: remove it; the socket is in runtimeDirectory, in the unit at ListenStream= of its socket unit',
  ],
  [/^service\.expires$/, 'is gone: name the life in seconds as service.lifetime'],
  [/^share\.host$/, 'is gone: remove it; a host is known by the name that `hostname` prints'],
  [/^share\.tls\.keyFile$/, 'is gone: write share.tls.key as { "file": PATH }'],
  [
    /^log\.format$/,
    'is "journal", which is gone: write "json", which `journalctl -o cat` prints, or "auto"',
    (value) => value === 'journal',
  ],
  [
    /^service\.refusals\[\d+\]\.status$/,
    'is under 300, which is gone: put a small service of your own at baseUrl, which answers otherwise',
    (value) => typeof value === 'number' && value >= 200 && value < 300,
  ],
]

/** The settings, or the faults of the document's shape: one for each key path, without any value. */
export function validateDocument(document: unknown): {
  faults: ConfigIssue[]
  settings: Settings | undefined
} {
  const { success, output, issues } = v.safeParse(configSchema(), withPreset(document), {
    abortPipeEarly: true,
  })
  const faults = (issues ?? []).map(({ path = [], input, message }): ConfigIssue => {
    const at = keyPath(path.map(({ key }) => key as PropertyKey))
    const gone = GONE.find(([where, , isGone = () => true]) => where.test(at) && isGone(input))
    return { at, sentence: gone?.[1] ?? message }
  })
  const { preset, tokenUrl } = serviceOf(document) ?? {}
  if (preset === 'oauth2' && tokenUrl === undefined)
    faults.push({
      at: 'service.tokenUrl',
      sentence: `is missing beside the preset: it must be ${TOKEN_URL_SHAPE}`,
    })
  return { faults, settings: success && faults.length === 0 ? output : undefined }
}

function serviceOf(document: unknown): Record<string, unknown> | undefined {
  const service = isRecord(document) ? document['service'] : undefined
  return isRecord(service) ? service : undefined
}

/** The client credentials grant (RFC 6749, section 4.4). */
const OAUTH2 = {
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
  const service = serviceOf(document)
  if (service?.['preset'] !== 'oauth2') return document
  const { names = {}, assertion } = service
  // An assertion that is the grant has a `grant_type` of its own.
  const isGrant = isRecord(assertion) && ['grant', 'exchange'].includes(String(assertion['as']))
  const merged = {
    ...OAUTH2,
    ...(isGrant && { parameters: {} }),
    ...service,
    names: isRecord(names) ? { ...OAUTH2_NAMES, ...names } : names,
  }
  return { ...(document as object), service: merged }
}
