// Secret sources: a string, a file, a systemd credential or an environment variable, read again at each load.
import { join, resolve } from 'node:path'

import { accountOfEnvironment, unitNames } from '../lib/account.ts'
import { CONTROL_CHARACTER } from '../lib/display-text.ts'
import { Secret } from '../lib/secret.ts'
import { readFile, readInput, shellWord, type InputContext } from './read-file.ts'
import type { SecretSource } from './validate.ts'

interface SecretOptions {
  readonly at: string
  readonly context: InputContext
}

/** A shorter one is hardly a secret; and wherever it is hidden in a text, words may go with it. */
const MIN_LENGTH = 8

/** Values that cannot be used. Each sentence goes on from the name of the source. */
const REFUSALS: readonly (readonly [RegExp, string])[] = [
  [/^\s*$/, 'is empty: put the secret there'],
  [
    CONTROL_CHARACTER,
    'holds a line break or another control character inside: write the secret alone, on one line',
  ],
  [
    /^\uFEFF/,
    'begins with a byte order mark, as some editors put it: save it as UTF-8 without one (without "BOM")',
  ],
  [
    // Formatting characters and line separators: the service would refuse the account for them.
    /[\p{Cf}\p{Zl}\p{Zp}]/u,
    'holds an invisible character, as come along when text is copied from a page: type the secret, or copy it again',
  ],
  [/\uFFFD/, 'is not valid UTF-8: write the secret as plain text'],
]
/** Mistakes that people make with secrets. Only warnings: such a secret may be right. */
const MISTAKES: readonly (readonly [RegExp, string])[] = [
  [/^(["'`]).*\1$/, 'is in quotes, which are part of it: write the secret without them'],
  [/^\s|\s$/, 'begins or ends with a blank, which is part of it: remove that'],
  [
    /^(export\s+)?[A-Z][A-Z0-9_]*\s*=./,
    'begins with a name and "=", as a line of an environment file does: write what follows the "=" alone',
  ],
  [/^Bearer\s/i, 'begins with "Bearer", as a token does: write the secret of the account'],
]

/** The secret; undefined where none can be used, and then `diagnostics` have the reason. */
export function readSecret(source: SecretSource, options: SecretOptions): Secret | undefined {
  const { at, context } = options
  if (typeof source === 'string') return checked(source, { ...options, where: 'the secret' })
  if ('file' in source) {
    const remedy = 'make it, with mode 0600 or 0640, or name another'
    const bytes = readInput(source.file, { at, holdsSecret: true, remedy, context })
    const where = `the file ${resolve(context.directory, source.file)}`
    return bytes && checked(withoutNewline(bytes.toString('utf8')), { ...options, where })
  }
  if ('credential' in source) return fromCredential(source.credential, options)
  const value = context.env[source.env]
  if (value !== undefined)
    return checked(value, { ...options, where: `the environment variable ${source.env}` })
  notThere(
    `the environment variable ${source.env} is not set: set it where kyc-tokend is started (Environment= or EnvironmentFile= of the service), or use { "file": PATH }`,
    options,
  )
  return undefined
}

/** Owner and mode are systemd's affair: 0400, or 0440 with an access list, of root or of the service's user. */
function fromCredential(name: string, options: SecretOptions): Secret | undefined {
  const { at, context } = options
  const { diagnostics } = context
  const directory = context.env['CREDENTIALS_DIRECTORY']
  const { unit } = unitNames(accountOfEnvironment(context.env))
  const remedy = `add LoadCredential=${name}:/PATH to the unit (systemctl edit ${unit}) and restart it, or use { "file": PATH }`
  if (directory === undefined || directory === '') {
    notThere(
      `the systemd credential ${name} is not there, because there is no $CREDENTIALS_DIRECTORY: ${remedy}`,
      options,
    )
    return undefined
  }
  const reading = readFile(join(directory, name))
  if (reading.kind === 'read')
    return checked(withoutNewline(reading.bytes.toString('utf8')), {
      ...options,
      where: `the systemd credential ${name}`,
    })
  // systemd may hide it from everybody but the service itself, a check at its reload too.
  if (reading.kind === 'absent' || context.isElsewhere)
    notThere(`the systemd credential ${name} is not there: ${remedy}`, options)
  else diagnostics.fault(at, `the systemd credential ${shellWord(join(directory, name))} ${reading.sentence}`)
  return undefined
}

function notThere(sentence: string, options: SecretOptions): void {
  const { at, context } = options
  const { diagnostics } = context
  if (!context.isElsewhere) return diagnostics.fault(at, sentence)
  context.unseen.push(at)
  diagnostics.warn(at, `cannot be checked from here, because only the service sees it: ${sentence}`)
}

function checked(value: string, options: SecretOptions & { where: string }): Secret | undefined {
  const { at, where, context } = options
  const { diagnostics } = context
  const refusal = secretRefusal(value)
  if (refusal !== undefined) {
    diagnostics.fault(at, `${where} ${refusal}`)
    return undefined
  }
  if (value.length < MIN_LENGTH)
    diagnostics.warn(
      at,
      `${where} has fewer than ${MIN_LENGTH} characters: check that it is whole; words like it are hidden in the log, too`,
    )
  const [, mistake] = MISTAKES.find(([pattern]) => pattern.test(value)) ?? []
  if (mistake !== undefined) diagnostics.warn(at, `${where} ${mistake}`)
  return new Secret(value)
}

/** Why a secret cannot be used; goes on from the name of its source. */
export function secretRefusal(value: string): string | undefined {
  return REFUSALS.find(([pattern]) => pattern.test(value))?.[1]
}

/** One newline at the end is how editors and `echo` end a file. */
export function withoutNewline(text: string): string {
  return text.replace(/\r?\n$/, '')
}
