// Secret sources: a string, a file, a systemd credential or an environment variable, each read anew at each load.
import { join, resolve } from 'node:path'

import { Secret } from '../lib/secret.ts'
import type { Verdicts } from './faults.ts'
import { permissionFaults, readFile, shellWord } from './read-file.ts'
import type { ConfigInput } from './schema.ts'

export type SecretSource = ConfigInput['credentials']['apiKey']

export interface SecretContext {
  readonly env: NodeJS.ProcessEnv
  /** The directory of the configuration file, to which files are relative. */
  readonly directory: string
  /** Who runs the daemon. */
  readonly uid: number
  /**
   * The daemon runs elsewhere, as a service: what only the service sees (credentials, environment) is told in a
   * warning where it is not there.
   */
  readonly isElsewhere: boolean
}

const CONTROL = /\p{Cc}/u
/** Formatting characters, line separators: nobody sees them, and the service would refuse the account for them. */
const INVISIBLE = /[\p{Cf}\p{Zl}\p{Zp}]/u
const BYTE_ORDER_MARK = '\uFEFF'
/** A shorter one is hardly a secret; and wherever it is hidden in a text, words may go with it. */
const MIN_LENGTH = 8

/** The secret; undefined where there is none that can be used, and then `verdicts` know why. */
export function readSecret(
  source: SecretSource,
  options: { at: string; verdicts: Verdicts; context: SecretContext },
): Secret | undefined {
  const { at, verdicts, context } = options
  if (typeof source === 'string') return checked(source, { at, verdicts, where: 'the secret' })
  if ('file' in source) return fromFile(resolve(context.directory, source.file), options)
  if ('credential' in source) return fromCredential(source.credential, options)
  const value = context.env[source.env]
  if (value !== undefined)
    return checked(value, { at, verdicts, where: `the environment variable ${source.env}` })
  notThere(
    `the environment variable ${source.env} is not set: set it where kyc-tokend is started (Environment= or EnvironmentFile= of the service), or use { "file": PATH }`,
    options,
  )
  return undefined
}

function fromFile(path: string, options: Parameters<typeof readSecret>[1]): Secret | undefined {
  const { at, verdicts, context } = options
  const reading = readFile(path)
  if (reading.kind === 'absent') {
    verdicts.fault(at, `the file ${path} is not there: make it, with mode 0600 or 0640, or name another`)
    return undefined
  }
  if (reading.kind === 'unreadable') {
    verdicts.fault(at, `${path} ${reading.sentence}`)
    return undefined
  }
  for (const sentence of permissionFaults(path, reading.stats, { uid: context.uid, holdsSecret: true }))
    verdicts.fault(at, `${path} ${sentence}`)
  return checked(withoutNewline(reading.bytes.toString('utf8')), { at, verdicts, where: `the file ${path}` })
}

/** Owner and mode are systemd's affair: 0400, or 0440 with an access list, of root or of the service's user. */
function fromCredential(name: string, options: Parameters<typeof readSecret>[1]): Secret | undefined {
  const { at, verdicts, context } = options
  const directory = context.env['CREDENTIALS_DIRECTORY']
  const remedy = `add LoadCredential=${name}:/PATH to the unit (systemctl edit kyc-tokend) and restart it, or use { "file": PATH }`
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
      at,
      verdicts,
      where: `the systemd credential ${name}`,
    })
  // systemd may hide it from everybody but the service itself, a check at its reload too.
  if (reading.kind === 'absent' || context.isElsewhere)
    notThere(`the systemd credential ${name} is not there: ${remedy}`, options)
  else verdicts.fault(at, `the systemd credential ${shellWord(join(directory, name))} ${reading.sentence}`)
  return undefined
}

function notThere(sentence: string, options: Parameters<typeof readSecret>[1]): void {
  const { at, verdicts, context } = options
  if (context.isElsewhere)
    verdicts.warn(at, `cannot be judged from here, because only the service sees it: ${sentence}`)
  else verdicts.fault(at, sentence)
}

function checked(
  value: string,
  options: { at: string; verdicts: Verdicts; where: string },
): Secret | undefined {
  const { at, verdicts, where } = options
  const refuse = (sentence: string): undefined => {
    verdicts.fault(at, sentence)
    return undefined
  }
  if (value.trim() === '') return refuse(`${where} is empty: put the secret there`)
  if (CONTROL.test(value))
    return refuse(
      `${where} holds a line break or another control character inside: write the secret alone, on one line`,
    )
  if (value.startsWith(BYTE_ORDER_MARK))
    return refuse(
      `${where} begins with a byte order mark, as some editors put it: save it as UTF-8 without one (without "BOM")`,
    )
  if (INVISIBLE.test(value))
    return refuse(
      `${where} holds an invisible character, as come along when text is copied from a page: type the secret, or copy it anew`,
    )
  if (value.includes('\uFFFD')) return refuse(`${where} is not valid UTF-8: write the secret as plain text`)
  if (value.length < MIN_LENGTH)
    verdicts.warn(
      at,
      `${where} has fewer than ${MIN_LENGTH} characters: look whether it is whole; words like it are hidden in the log, too`,
    )
  return new Secret(value)
}

/** One newline at the end is how editors and `echo` end a file. */
function withoutNewline(text: string): string {
  return text.replace(/\r?\n$/, '')
}
