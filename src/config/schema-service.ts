// The settings of `service`, and the paths and words by which they name parts of an answer.
import * as v from 'valibot'
import { permanentReasons } from '../token/outcome.ts'
import { TOKEN_URL_SHAPE, tokenUrlProblem } from './base-url.ts'
import {
  count,
  dependentSetting,
  list,
  fieldName,
  oneOf,
  orNull,
  rawCheck,
  required,
  secretSource,
  formed,
  values,
  claims,
  line,
  section,
  setting,
  span,
} from './schema-parts.ts'
import { presetNames, STANDARD } from './service-presets.ts'

const answerPath = () => {
  const shape = 'must be the path of a field, names joined by dots: write it as "token" or "data.token"'
  return v.pipe(line(255, shape), v.regex(/^[^.\s]+(?:\.[^.\s]+)*$/, shape))
}
const saidWords = () => {
  const shape = 'must be words of the answer, and not empty: write them as "Account not found"'
  return v.pipe(line(200, shape), v.regex(/\S/, shape))
}
const errorStatus = () => count(599, 400)

/** The settings of `service`. */
export const service = () =>
  section({
    preset: orNull(
      oneOf(presetNames),
      'Defaults of the other keys: `oauth2` for the client credentials grant (RFC 6749, section 4.4), which needs `tokenUrl`.',
    ),
    tokenUrl: dependentSetting(
      v.pipe(line(2048, TOKEN_URL_SHAPE), rawCheck(tokenUrlProblem)),
      'Path (and query) of the token endpoint after `baseUrl`, or its whole URL: https, or http for a loopback host.',
      STANDARD.tokenUrl,
    ),
    send: dependentSetting(
      oneOf(['json', 'form', 'headers', 'basic', 'basic-plain', 'assertion']),
      'How key and secret are sent: fields of a JSON object (`json`) or of a form (`form`), `headers`, HTTP Basic with `parameters` as a form (`basic`; `basic-plain`: without form-encoding them first), or a signed `assertion` in a form.',
      STANDARD.send,
    ),
    names: dependentSetting(
      section({
        apiKey: dependentSetting(
          v.nullable(fieldName()),
          'Name of the field or header with the key; `null`: it is not sent.',
          STANDARD.names.apiKey,
        ),
        apiSecret: dependentSetting(
          v.nullable(fieldName()),
          'Name of the field or header with the secret; `null`: it is not sent.',
          STANDARD.names.apiSecret,
        ),
      }),
      'Names of those fields or headers; with `json`, `form` and `headers`.',
      {},
    ),
    parameters: dependentSetting(
      values(),
      'Further fields of the request: each a text, a number, true or false, or a secret source.',
      {},
    ),
    headers: dependentSetting(
      values(),
      'Further headers, likewise; not `Authorization`, `Host`, `Content-…` and others that the request decides.',
      {},
    ),
    token: dependentSetting(
      answerPath(),
      'Path of the token in the JSON object of the answer, its names joined by dots.',
      STANDARD.token,
    ),
    lifetime: dependentSetting(
      v.nullable(answerPath()),
      'Path of its life in seconds, a number or digits as text; `null`: the answer has none.',
      null,
    ),
    expires: dependentSetting(
      v.nullable(answerPath()),
      'Path of the instant at which it ends: ISO 8601 with a zone, or seconds or ms since 1970; `null`: the answer has none.',
      null,
    ),
    refusals: dependentSetting(
      list(
        section({
          status: required(
            count(599, 200),
            'HTTP status of the answer; 200 to 599. One under 300 needs `in`, and is looked for before the token.',
          ),
          says: required(saidWords(), 'Words that are looked for, case and white space aside.'),
          in: orNull(answerPath(), 'Path of the text that has them; `null`: anywhere in the answer.'),
          reason: required(oneOf(permanentReasons), '`account-inactive` or `account-not-found`.'),
        }),
      ),
      'Answers that refuse the account for good, until a person acts; the list replaces the default.',
      [...STANDARD.refusals],
    ),
    refusedBy: dependentSetting(
      list(errorStatus()),
      'Statuses by which the API, not the token endpoint, says that a token is refused; 400 to 599.',
      [...STANDARD.refusedBy],
    ),
    use: dependentSetting(
      section({
        header: dependentSetting(
          fieldName('X-Api-Token'),
          'Header in which the API wants the token.',
          STANDARD.use.header,
        ),
        prefix: dependentSetting(
          formed(
            /^(?:[!-~][ -~]{0,63})?$/,
            'must be at most 64 visible ASCII characters, or "": write it as "Bearer " with its blank',
          ),
          'What stands before the token in it; may be empty.',
          STANDARD.use.prefix,
        ),
      }),
      'How the API wants the token.',
      {},
    ),
    assertion: dependentSetting(
      v.nullable(
        section(
          {
            key: required(secretSource(), 'Private key that signs it, PEM or JWK: a secret source.'),
            algorithm: setting(
              oneOf(['RS256', 'PS256', 'ES256', 'EdDSA']),
              'Algorithm of the signature.',
              'RS256',
            ),
            keyId: orNull(line(255), '`kid` of its header; `null`: none.'),
            audience: orNull(line(2048), '`aud`; `null`: `tokenUrl`.'),
            lifetime: span('Time between `iat` and `exp`', ['10s', '1h'], '1m'),
            as: setting(
              oneOf(['client', 'grant']),
              '`client`: it authenticates the client (private_key_jwt; RFC 7523, section 2.2). `grant`: it is the grant (section 2.1).',
              'client',
            ),
            claims: setting(claims(), 'Further claims, which replace its own.', {}),
          },
          '{ "key": { "file": "assertion.pem" } }',
        ),
      ),
      'With `send: "assertion"`: a JWT (RFC 7523) that the daemon signs; its `iss` and `sub` are the key.',
      null,
    ),
  })
