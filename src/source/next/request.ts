// The request for a token as the service is described: where the key, the secret or the assertion go.
import type { ServiceConfig } from '../../config/config.ts'
import { basicOf, type Credentials } from '../../config/credentials.ts'
import program from '../../../package.json' with { type: 'json' }

export interface ServiceRequest {
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  /** Holds the secret: made for one attempt, and not kept. */
  readonly body: Buffer
}

/** `assertion`: the signed or the ready-made one, with `send: "assertion"`. */
export function serviceRequest(
  service: ServiceConfig,
  credentials: Credentials,
  assertion = '',
): ServiceRequest {
  const { send, names, tokenUrl } = service
  const pair = Object.fromEntries(
    (['apiKey', 'apiSecret'] as const).flatMap((which) => {
      const name = names[which]
      return name === null ? [] : [[name, credentials[which]?.reveal() ?? '']]
    }),
  )
  const fields = {
    ...((send === 'json' || send === 'form') && pair),
    ...(send === 'assertion' && assertionFields(service, { assertion, credentials })),
    ...revealed(service.parameters, credentials),
  }
  const isJson = send === 'json' || send === 'headers'
  const texts = Object.entries(fields).map(([name, value]): [string, string] => [name, String(value)])
  const body = Buffer.from(isJson ? JSON.stringify(fields) : new URLSearchParams(texts).toString())
  const isBasic = send === 'basic' || send === 'basic-plain'
  const further = Object.entries(revealed(service.headers, credentials))
  // Of two headers with one name, whatever their letter case, Node sends the last.
  const headers = {
    accept: 'application/json',
    // A compressed answer could hide its size.
    'accept-encoding': 'identity',
    'content-type': isJson ? 'application/json' : 'application/x-www-form-urlencoded',
    'content-length': String(body.length),
    'user-agent': `kyc-tokend/${program.version}`,
    ...(isBasic && { authorization: `Basic ${basicOf(credentials, { isEncoded: send === 'basic' })}` }),
    ...(send === 'headers' && pair),
    ...Object.fromEntries(further.map(([name, value]) => [name, String(value)])),
  }
  return { url: new URL(tokenUrl), headers, body }
}

/** The values with the secrets that they name. */
function revealed(values: ServiceConfig['parameters'], { further = {} }: Credentials) {
  const entries = Object.entries(values).map(([name, value]) => {
    return [name, typeof value === 'object' ? (further[value.secretAt]?.reveal() ?? '') : value] as const
  })
  return Object.fromEntries(entries)
}

const OAUTH = 'urn:ietf:params:oauth'

/** RFC 7523, sections 2.1 and 2.2; RFC 8693, section 2.1. Beside a ready-made one the key is the client's id. */
function assertionFields(
  { assertion: described }: Pick<ServiceConfig, 'assertion'>,
  { assertion, credentials: { apiKey } }: { assertion: string; credentials: Credentials },
): Readonly<Record<string, string>> {
  const { as, type, file } = described!
  const client = file === null || apiKey === null ? {} : { client_id: apiKey.reveal() }
  if (as === 'grant') return { ...client, grant_type: `${OAUTH}:grant-type:jwt-bearer`, assertion }
  if (as === 'exchange')
    return {
      ...client,
      grant_type: `${OAUTH}:grant-type:token-exchange`,
      subject_token: assertion,
      subject_token_type: type ?? `${OAUTH}:token-type:jwt`,
    }
  return {
    ...client,
    client_assertion_type: type ?? `${OAUTH}:client-assertion-type:jwt-bearer`,
    client_assertion: assertion,
  }
}
