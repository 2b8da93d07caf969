// The request for a token as the service is described: where the key, the secret or the assertion go.
import type { PairConfig, ServiceConfig, Value } from '../config/config.ts'
import { formEncoded, Secret } from '../lib/secret.ts'
import program from '../../package.json' with { type: 'json' }

export interface ServiceRequest {
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  /** Holds the secret: made for one attempt, and not kept. */
  readonly body: Buffer
}

/** `assertion`: the signed or the ready-made one, with `send: "assertion"`. */
export function serviceRequest(
  { tokenUrl }: Pick<ServiceConfig, 'tokenUrl'>,
  pair: PairConfig,
  assertion = '',
): ServiceRequest {
  const { send, names } = pair
  const secrets = [pair.apiKey, pair.apiSecret].map((secret) => secret?.reveal() ?? '')
  const named = Object.fromEntries(
    [names.apiKey, names.apiSecret].flatMap((name, index) => (name === null ? [] : [[name, secrets[index]]])),
  ) as Record<string, string>
  const fields = {
    ...((send === 'json' || send === 'form') && named),
    ...(send === 'assertion' && assertionFields(pair, assertion)),
    ...revealed(pair.parameters),
  }
  const isJson = send === 'json' || send === 'headers'
  const texts = Object.entries(fields).map(([name, value]): [string, string] => [name, String(value)])
  const body = Buffer.from(isJson ? JSON.stringify(fields) : new URLSearchParams(texts).toString())
  // RFC 6749, section 2.3.1.
  const login = (send === 'basic' ? secrets.map(formEncoded) : secrets).join(':')
  // Of two headers with one name, whatever their letter case, Node sends the last.
  const headers = {
    accept: 'application/json',
    // A compressed answer could hide its size.
    'accept-encoding': 'identity',
    'content-type': isJson ? 'application/json' : 'application/x-www-form-urlencoded',
    'content-length': String(body.length),
    'user-agent': `kyc-tokend/${program.version}`,
    ...(send.startsWith('basic') && {
      authorization: `Basic ${Buffer.from(login).toString('base64')}`,
    }),
    ...(send === 'headers' && named),
    ...Object.fromEntries(
      Object.entries(revealed(pair.headers)).map(([name, value]) => [name, String(value)]),
    ),
  }
  return { url: new URL(tokenUrl), headers, body }
}

function revealed(values: Readonly<Record<string, Value>>): Record<string, string | number | boolean> {
  const entries = Object.entries(values).map(([name, value]) => {
    return [name, value instanceof Secret ? value.reveal() : value] as const
  })
  return Object.fromEntries(entries)
}

const OAUTH = 'urn:ietf:params:oauth'

/** RFC 7523, sections 2.1 and 2.2; RFC 8693, section 2.1. Beside a ready-made one the key is the client's id. */
function assertionFields({ assertion: how, apiKey }: PairConfig, assertion: string): Record<string, string> {
  const { as } = how!
  const type = how!.kind === 'ready' ? how!.type : null
  const client = how!.kind === 'signed' || apiKey === null ? {} : { client_id: apiKey.reveal() }
  if (as === 'grant') return { ...client, grant_type: `${OAUTH}:grant-type:jwt-bearer`, assertion }
  if (as === 'client') {
    const client_assertion_type = type ?? `${OAUTH}:client-assertion-type:jwt-bearer`
    return { ...client, client_assertion_type, client_assertion: assertion }
  }
  return {
    ...client,
    grant_type: `${OAUTH}:grant-type:token-exchange`,
    subject_token: assertion,
    subject_token_type: type ?? `${OAUTH}:token-type:jwt`,
  }
}
