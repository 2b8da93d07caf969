// The rules between the keys of `service.assertion`, which is signed here or ready-made.
import { isSame } from '../lib/secret.ts'
import { keyPath, type Diagnostics } from './issues.ts'
import { standardAssertion } from './schema-service.ts'
import type { Settings } from './schema.ts'

type ServiceSettings = Pick<Settings['service'], 'send' | 'assertion' | 'parameters'>
type Assertion = NonNullable<ServiceSettings['assertion']>

const AT = 'service.assertion'

export function checkAssertion(
  { send, assertion, parameters }: ServiceSettings,
  { fault, warn }: Diagnostics,
): void {
  if (assertion === null) {
    if (send === 'assertion')
      fault(
        AT,
        'is missing, and "send": "assertion" needs it: write it as { "key": { "file": "assertion.pem" } }',
      )
    return
  }
  if (send !== 'assertion') fault(AT, 'is of use with "send": "assertion" only: set that, or leave it out')
  for (const [at, sentence] of problems(assertion)) fault(at, sentence)
  if (assertion.as !== 'client' && Object.hasOwn(parameters, 'grant_type'))
    warn(
      'service.parameters.grant_type',
      `replaces the one that an assertion as "${assertion.as}" has: ` +
        'leave it out unless the service wants another',
    )
}

/** Settings of a signed one alone. */
const OF_KEY = ['algorithm', 'keyId', 'audience', 'lifetime', 'claims', 'header'] as const
/** Fields of a JWT's header with a setting of their own, or that change what is signed (RFC 7515, RFC 7797). */
const OWN_FIELDS = {
  alg: 'set service.assertion.algorithm',
  kid: 'set service.assertion.keyId',
  crit: 'leave it out',
  b64: 'leave it out',
}

function problems(assertion: Assertion): [string, string][] {
  const { key, file, as, type, header } = assertion
  const standard = standardAssertion()
  const notOfFile = file === null ? [] : OF_KEY.filter((name) => !isSame(assertion[name], standard[name]))
  const rules: [boolean, string, string][] = [
    [
      key === null && file === null,
      AT,
      'has neither a key, with which the daemon signs, nor the file of a ready-made one: name one',
    ],
    [
      key !== null && file !== null,
      `${AT}.file`,
      'is beside service.assertion.key: name the key that signs, or what is signed already',
    ],
    [
      file === null && as === 'exchange',
      `${AT}.as`,
      'is "exchange", which is for a ready-made assertion: set service.assertion.file',
    ],
    [
      type !== null && (file === null || as === 'grant'),
      `${AT}.type`,
      'is of use with service.assertion.file as "client" or "exchange" only: leave it out',
    ],
  ]
  return [
    ...rules.flatMap(([isBroken, at, sentence]): [string, string][] => (isBroken ? [[at, sentence]] : [])),
    ...notOfFile.map((name): [string, string] => [
      `${AT}.${name}`,
      'is of no use with service.assertion.file, which is signed already: leave it out',
    ]),
    ...Object.entries(OWN_FIELDS)
      .filter(([name]) => Object.hasOwn(header, name))
      .map(([name, remedy]): [string, string] => [
        keyPath(['service', 'assertion', 'header', name]),
        `is not free: ${remedy}`,
      ]),
  ]
}
