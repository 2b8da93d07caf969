// The configuration of a host of the model, by a name: the pair, after a `+` the client certificate, and after
// an `@` the service, if that is another.
import type { Config } from '../../src/config/config.ts'
import { standardService } from '../../src/config/service.ts'
import { Secret } from '../../src/lib/secret.ts'
import { MAX_AGE_MS, MAX_DELAY_MS, REQUEST_TIMEOUT_MS, type Host } from './state.ts'

const HERE = 'https://service.example'
const THERE = 'https://there.example'
const CERTIFICATE = 'request.clientCertificate.certFile'
const STORE = { servers: [], cluster: false, key: null, timeoutMs: 1_000 }

export function nameOf({ credentials, baseUrl }: Pick<Config, 'credentials' | 'baseUrl'>): string {
  const { apiKey, further = {} } = credentials
  const pair = [apiKey!, ...Object.values(further)].map((secret) => secret.reveal()).join('+')
  return baseUrl === HERE ? pair : `${pair}@there`
}

export function baseUrlOf(tokenUrl: string): string {
  return tokenUrl.startsWith(HERE) ? HERE : THERE
}

interface ShareOfHost {
  readonly name: string | null
  /** It does not ask. */
  readonly isWaiting: boolean
  /** Other settings than usual. */
  readonly share: object
}
/** The configuration with the pair that lies in the secret files. */
export type ConfigOf = (host: Host, share: ShareOfHost) => Config

/** The identity of a configuration counts: each is made once. */
export function createConfigOf(): ConfigOf {
  const configs = new Map<string, Config>()
  return (host, share) => {
    const key = [host.files, host.policy, host.prefix, JSON.stringify(share)].join()
    const config = configs.get(key) ?? configFrom(host, share)
    configs.set(key, config)
    return config
  }
}

function configFrom(
  { files, policy, prefix }: Host,
  { name, isWaiting, share: settings }: ShareOfHost,
): Config {
  const [credentials = '', place] = files.split('@')
  const [pair = '', certificate] = credentials.split('+')
  const baseUrl = place === undefined ? HERE : THERE
  const secret = new Secret(pair)
  const further = certificate !== undefined && { [CERTIFICATE]: new Secret(certificate) }
  const whenAlone = isWaiting ? 'wait' : 'fetch'
  const share = { ...STORE, host: name, asks: !isWaiting, whenAlone, prefix, ...settings }
  return {
    file: 'config',
    baseUrl,
    service: standardService(baseUrl),
    credentials: { apiKey: secret, apiSecret: secret, ...(further && { further }) },
    request: { timeoutMs: REQUEST_TIMEOUT_MS },
    retry: { initialDelayMs: 1_000, maxDelayMs: MAX_DELAY_MS[policy] },
    refresh: { maxAgeMs: MAX_AGE_MS },
    ipc: { path: 'ipc.sock' },
    http: null,
    secretFiles: {
      'credentials.apiKey': 'key-file',
      'credentials.apiSecret': 'secret-file',
      [CERTIFICATE]: 'certificate-file',
    },
    endsAtMs: { pair: null },
    share: prefix === null ? null : share,
  } as unknown as Config
}
