// The settings of `service`, their defaults, and the presets, which bring other defaults.
import * as v from 'valibot'
import { isRecord } from '../lib/input.ts'
import { permanentReasons } from '../protocol.ts'
import { ENDPOINT, TOKEN_URL_SHAPE, tokenUrlProblem } from './base-url.ts'
import {
  count,
  fieldName,
  formed,
  group,
  line,
  list,
  objectOf,
  oneOf,
  orNull,
  path,
  rawCheck,
  required,
  secretSource,
  section,
  setting,
  span,
  valueKind,
  values,
} from './schema-parts.ts'

/** The service of the interface description. */
const STANDARD = {
  tokenUrl: ENDPOINT,
  send: 'json',
  names: { apiKey: 'apiKey', apiSecret: 'apiSecret' },
  parameters: {},
  token: 'accessToken',
  lifetime: null,
  refusals: [
    { status: 500, says: 'Your account is not active', in: 'detail', reason: 'account-inactive' },
    { status: 404, says: 'Account not found', in: 'detail', reason: 'account-not-found' },
  ],
} as const

/** The client credentials grant (RFC 6749, section 4.4). */
const OAUTH2 = {
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
} as const

/** The defaults beside this preset; null: none. An assertion that is the grant has a `grant_type` of its own. */
export function defaultsOf(preset: unknown, as: unknown = 'client') {
  if (preset !== 'oauth2') return STANDARD
  return as === 'grant' || as === 'exchange' ? { ...OAUTH2, parameters: {} } : OAUTH2
}

type Defaults = ReturnType<typeof defaultsOf>

/** Reports whether a refusal is by a row of the preset. */
export function isPresetRefusal({ status, says }: { status: number | null; says: string | null }): boolean {
  return OAUTH2.refusals.some((row) => row.status === status && row.says === says)
}

/** Names of an answer's fields, one within the other. */
const answerPath = () => {
  const shape = 'must be the path of a field, names joined by dots: write it as "token" or "data.token"'
  return v.pipe(
    line(255, shape),
    v.regex(/^[^.\s]+(?:\.[^.\s]+)*$/, shape),
    v.transform((text) => text.split('.')),
  )
}
const saidWords = () => {
  const shape = 'must be words of the answer, and not empty: write them as "Account not found"'
  return v.pipe(line(200, shape), v.regex(/\S/, shape))
}

const TOKEN_URL_MEANING =
  'Path (and query) of the token endpoint after `baseUrl`, or its whole URL: ' +
  'https, or http for a loopback host.'

const fieldNames = (names: Defaults['names']) =>
  group('Names of those fields or headers; with `json`, `form` and `headers`.', {
    apiKey: setting(
      v.nullable(fieldName()),
      'Name of the field or header with the key; `null`: it is not sent.',
      names.apiKey,
    ),
    apiSecret: setting(
      v.nullable(fieldName()),
      'Name of the field or header with the secret; `null`: it is not sent.',
      names.apiSecret,
    ),
  })

const refusals = (rows: Defaults['refusals']) =>
  setting(
    list(
      section({
        status: required(
          count(599, 200),
          'HTTP status of the answer; 200 to 599. ' +
            'One under 300 needs `in`, and is looked for before the token.',
        ),
        says: required(saidWords(), 'Words that are looked for, case and white space aside.'),
        in: orNull(answerPath(), 'Path of the text that has them; `null`: anywhere in the answer.'),
        reason: required(oneOf(permanentReasons), 'What the answer means.'),
      }),
    ),
    'Answers that refuse the account for good, until a person acts; the list replaces the default.',
    [...rows],
  )

const tokenUse = () =>
  group('How the API wants the token.', {
    header: setting(fieldName('X-Api-Token'), 'Header in which the API wants the token.', 'Authorization'),
    prefix: setting(
      v.pipe(
        formed(
          /^(?:[!-~][ -~]{0,63})?$/,
          'must be at most 64 visible ASCII characters, or "": write it as "Bearer " with its blank',
        ),
        valueKind('text, 0 to 64 visible ASCII characters'),
      ),
      'What stands before the token in it; may be empty.',
      'Bearer ',
    ),
  })

const described = (preset: unknown, as: unknown) => {
  const defaults = defaultsOf(preset, as)
  const tokenUrl = v.pipe(line(2048, TOKEN_URL_SHAPE), rawCheck(tokenUrlProblem))
  return section({
    preset: orNull(
      oneOf(['oauth2']),
      'Defaults of the other keys: `oauth2` for client credentials (RFC 6749, section 4.4), with `tokenUrl`.',
    ),
    tokenUrl:
      preset === 'oauth2'
        ? required(tokenUrl, TOKEN_URL_MEANING)
        : setting(tokenUrl, TOKEN_URL_MEANING, STANDARD.tokenUrl),
    send: setting(
      oneOf(['json', 'form', 'headers', 'basic', 'basic-plain', 'assertion']),
      'How key and secret are sent: fields of a JSON object (`json`) or of a form (`form`), `headers`, ' +
        'HTTP Basic with `parameters` as a form (`basic`; ' +
        '`basic-plain`: without form-encoding them first), or a signed `assertion` in a form.',
      defaults.send,
    ),
    names: fieldNames(defaults.names),
    parameters: setting(
      values(),
      'Further fields of the request: each a text, a number, true or false, or a secret source.',
      defaults.parameters,
    ),
    headers: setting(
      values(),
      'Further headers, likewise; not `Authorization`, `Host`, `Content-…` and their like.',
      {},
    ),
    token: setting(answerPath(), 'Path of the token in the answer: names joined by dots.', defaults.token),
    lifetime: setting(
      v.nullable(answerPath()),
      'Path of its life in seconds, a number or digits as text.',
      defaults.lifetime,
    ),
    expires: orNull(
      answerPath(),
      'Path of the instant at which it ends: ISO 8601 with a zone, or seconds or ms since 1970.',
    ),
    refusals: refusals(defaults.refusals),
    refusedBy: setting(
      list(count(599, 400)),
      'Statuses by which the API, not the token endpoint, says that a token is refused; 400 to 599.',
      [401],
    ),
    use: tokenUse(),
    assertion: orNull(
      assertion(),
      'With `send: "assertion"`: a JWT (RFC 7523) that the daemon signs with `key` (its `iss` and `sub` are ' +
        'the API key), or that another program signs and renews in `file`.',
    ),
  })
}

const assertion = () =>
  section(
    {
      key: orNull(secretSource(), 'Private key that signs it, PEM or JWK: a secret source.'),
      algorithm: setting(oneOf(['RS256', 'PS256', 'ES256', 'EdDSA']), 'Algorithm of the signature.', 'RS256'),
      keyId: orNull(line(255), '`kid` of its header; `null`: none.'),
      audience: orNull(line(2048), '`aud`; `null`: `tokenUrl`.'),
      lifetime: span('Time between `iat` and `exp`', ['10s', '1h'], '1m'),
      as: setting(
        oneOf(['client', 'grant', 'exchange']),
        '`client`: it authenticates the client (private_key_jwt; RFC 7523, section 2.2). ' +
          '`grant`: it is the grant (section 2.1). `exchange`: it is exchanged (RFC 8693); with `file`.',
        'client',
      ),
      claims: setting(
        objectOf('{ "scope": "kyc" }'),
        'Claims that replace its own; `null` leaves one out.',
        {},
      ),
      header: setting(objectOf('{ "x5t#S256": "…" }'), 'Fields of its header, likewise. Since 2.1.0.', {}),
      file: orNull(
        path(),
        'File with an assertion that another program renews: read at each request, and no part of the pair. ' +
          'Relative to the configuration file. Since 2.1.0.',
      ),
      type: orNull(
        line(255),
        'Type of that one; `null`: `urn:ietf:params:oauth:client-assertion-type:jwt-bearer` as `client`, ' +
          '`urn:ietf:params:oauth:token-type:jwt` as `exchange`. Since 2.1.0.',
      ),
    },
    '{ "key": { "file": "assertion.pem" } }',
  )

/** The settings of `service`, whose defaults depend on its preset. */
const service = () =>
  v.lazy((document) => {
    const { preset = null, assertion: ofJwt = null } = isRecord(document) ? document : {}
    return described(preset, isRecord(ofJwt) ? ofJwt['as'] : null)
  })

/** The settings of the service of the interface description. */
export const standardSettings = () => v.parse(service(), {})

/** The settings of an assertion that says nothing. */
export const standardAssertion = () => v.parse(assertion(), {})

/** `service`; null means the service of the interface description. */
export const serviceSetting = () =>
  v.optional(
    v.pipe(
      v.nullable(service()),
      v.description('Another service than that of the interface description; `null`: that one.'),
      v.transform((settings) => settings ?? standardSettings()),
    ),
    null,
  )
