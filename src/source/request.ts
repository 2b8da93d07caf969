// The request for a token, as the interface description (section 4.1) has it.
import type { Secret } from '../lib/secret.ts'
import { version } from '../lib/version.ts'

export interface Credentials {
  readonly apiKey: Secret
  readonly apiSecret: Secret
}
export interface ServiceRequest {
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  /** Holds the secret: made for one attempt, and not kept. */
  readonly body: Buffer
}

const TOKEN_PATH = '/token/external/jwt'

/** The request for a token. A path of `baseUrl` is kept. No compressed answer is accepted: it could hide its size. */
export function serviceRequest(baseUrl: string, credentials: Credentials): ServiceRequest {
  const { apiKey, apiSecret } = credentials
  const body = Buffer.from(JSON.stringify({ apiKey: apiKey.reveal(), apiSecret: apiSecret.reveal() }))
  return {
    url: new URL(baseUrl.replace(/\/+$/, '') + TOKEN_PATH),
    headers: {
      accept: 'application/json',
      'accept-encoding': 'identity',
      'content-type': 'application/json',
      'content-length': String(body.length),
      'user-agent': `kyc-tokend/${version}`,
    },
    body,
  }
}
