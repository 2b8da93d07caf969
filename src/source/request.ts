// What is sent to the service: the request for a token as the service is described.
import type { ServiceConfig } from '../config/config.ts'
import { basicOf, type Credentials } from '../lib/secret.ts'
import program from '../../package.json' with { type: 'json' }

export interface ServiceRequest extends Pick<ServiceConfig, 'hostSetting'> {
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  /** Holds the secret: made for one attempt, and not kept. */
  readonly body: Buffer
}

/** The request for a token as the service is described. No compressed answer is accepted, because it could hide its size. */
export function serviceRequest(service: ServiceConfig, credentials: Credentials): ServiceRequest {
  const { send, names, parameters } = service
  const own =
    send === 'basic'
      ? {}
      : {
          [names.apiKey]: credentials.apiKey.reveal(),
          [names.apiSecret]: credentials.apiSecret.reveal(),
        }
  const fields = { ...own, ...parameters }
  const body = Buffer.from(send === 'json' ? JSON.stringify(fields) : new URLSearchParams(fields).toString())
  // Of two headers with one name, whatever their letter case, Node sends the last.
  const headers = {
    accept: 'application/json',
    'accept-encoding': 'identity',
    'content-type': send === 'json' ? 'application/json' : 'application/x-www-form-urlencoded',
    'content-length': String(body.length),
    'user-agent': `kyc-tokend/${program.version}`,
    ...(send === 'basic' && { authorization: `Basic ${basicOf(credentials)}` }),
    ...service.headers,
  }
  return { url: new URL(service.tokenUrl), hostSetting: service.hostSetting, headers, body }
}
