// Reads the secrets and certificates that a configuration names, at each load.
import type { KeyObject } from 'node:crypto'
import { join, resolve } from 'node:path'
import { accountOfEnvironment, unitNames } from '../host/account.ts'
import { shellWord } from '../lib/display-text.ts'
import {
  certificateDatesProblem,
  certificateProblem,
  certificatesProblem,
  privateKeyOf,
} from './certificates.ts'
import { Secret } from '../lib/secret.ts'
import type { Diagnostics } from './issues.ts'
import { permissionFaults, readFile, type StagedFiles } from './read-file.ts'
import type { SecretSource } from './schema.ts'
import { probableMistake, secretRefusal, withoutNewline } from './secret-text.ts'

export interface InputsOptions {
  readonly env: NodeJS.ProcessEnv
  /** The directory of the configuration file, to which inputs are relative. */
  readonly directory: string
  /** The user that runs the daemon. */
  readonly uid: number
  /** systemd runs the daemon and not this process: a secret that only the daemon sees is a warning then. */
  readonly isElsewhere: boolean
  readonly staged?: StagedFiles | undefined
  readonly diagnostics: Diagnostics
}

export type Inputs = ReturnType<typeof createInputs>

/**
 * `at` is the key path of a setting. A function that gives null has reported the reason,
 * unless nothing was asked for. Throws FileError if a disk does not answer.
 */
export function createInputs({ env, directory, uid, isElsewhere, staged, diagnostics }: InputsOptions) {
  const { fault, warn } = diagnostics
  /** Every file that was read or should have been, absolute, by key path: nothing may be written over it. */
  const files: Record<string, string> = {}
  /** The settings whose secret only the daemon sees. */
  const unseen: string[] = []
  /** The names of the systemd credentials that were asked for. */
  const credentialNames: string[] = []
  let hasLiteral = false

  const pathOf = (path: string): string => resolve(directory, path)

  /** `remedy` is for a file that does not exist. */
  async function file(
    at: string,
    path: string,
    remedy: string,
    { holdsSecret = false } = {},
  ): Promise<Buffer | null> {
    const name = pathOf(path)
    files[at] = name
    const reading = await readFile(name, staged)
    if (reading.kind === 'absent')
      return fault(at, `the file ${name} is not there: ${remedy}`, { path: name, isAbsent: true })
    if (reading.kind === 'unreadable')
      return fault(at, `the file ${name} ${reading.sentence}`, reading.hidden)
    const { stats, isProjected } = reading
    for (const sentence of permissionFaults(name, stats, { uid, holdsSecret, isProjected }))
      fault(at, `the file ${name} ${sentence}`)
    return reading.bytes
  }

  /** Owner and mode are not checked: systemd sets them (0400, or 0440 with an access list). */
  async function credential(at: string, name: string): Promise<Buffer | null> {
    credentialNames.push(name)
    const where = `the systemd credential ${name}`
    const { unit } = unitNames(accountOfEnvironment(env))
    const remedy =
      `add LoadCredential=${name}:/PATH to the unit ` +
      `(\`sudo systemctl edit ${unit} && sudo systemctl restart ${unit}\`), or use { "file": PATH }`
    const credentials = env['CREDENTIALS_DIRECTORY']
    if (!credentials)
      return notThere(at, `${where} is not there, because there is no $CREDENTIALS_DIRECTORY: ${remedy}`)
    const path = join(credentials, name)
    const reading = await readFile(path)
    if (reading.kind === 'read') return reading.bytes
    // systemd may hide it from everybody but the daemon itself.
    if (reading.kind === 'absent' || isElsewhere) return notThere(at, `${where} is not there: ${remedy}`)
    return fault(at, `the systemd credential ${shellWord(path)} ${reading.sentence}`)
  }

  /** The text at a secret source, and its name for sentences. */
  async function read(at: string, source: SecretSource): Promise<{ where: string; text: string } | null> {
    if (typeof source === 'string') {
      hasLiteral = true
      return { where: 'the secret', text: source }
    }
    if ('env' in source) {
      const where = `the environment variable ${source.env}`
      const text = env[source.env]
      if (text !== undefined) return { where, text }
      const remedy =
        'set it where kyc-tokend is started ' +
        '(Environment= or EnvironmentFile= of the unit), or use { "file": PATH }'
      return notThere(at, `${where} is not set: ${remedy}`)
    }
    const isFile = 'file' in source
    const where = isFile ? `the file ${pathOf(source.file)}` : `the systemd credential ${source.credential}`
    const bytes = await (isFile
      ? file(at, source.file, 'make it, with mode 0600 or 0640, or name another', { holdsSecret: true })
      : credential(at, source.credential))
    return bytes && { where, text: withoutNewline(bytes.toString()) }
  }

  function notThere(at: string, sentence: string): null {
    if (!isElsewhere) return fault(at, sentence)
    unseen.push(at)
    warn(at, `cannot be checked from here, because only the daemon sees it: ${sentence}`)
    return null
  }

  /** Null, too, if there is no source. */
  async function secret(at: string, source: SecretSource | null): Promise<Secret | null> {
    const found = source === null ? null : await read(at, source)
    if (found === null) return null
    const { where, text } = found
    const refusal = secretRefusal(text)
    if (refusal !== undefined) return fault(at, `${where} ${refusal}`)
    const mistake = probableMistake(text)
    if (mistake !== undefined) warn(at, `${where} ${mistake}`)
    return new Secret(text)
  }

  /** A private key in PEM or as a JWK, without a passphrase. `problemOf`: why it does not fit. */
  async function privateKey(
    at: string,
    source: SecretSource,
    problemOf: (key: KeyObject) => string | undefined = () => undefined,
  ): Promise<Secret | null> {
    const found = await read(at, source)
    if (found === null) return null
    const name = typeof source === 'object' && 'file' in source ? shellWord(pathOf(source.file)) : undefined
    const key = privateKeyOf(found.text, name)
    const problem = typeof key === 'string' ? key : problemOf(key)
    if (problem === undefined) return new Secret(found.text)
    return fault(at, `${found.where} ${problem}`)
  }

  /** The PEM text; null, too, if no file is named. */
  async function certificates(
    at: string,
    path: string | null,
    remedy = 'name a PEM file of certificates, or null',
  ): Promise<string | null> {
    const bytes = path && (await file(at, path, remedy))
    const pem = bytes ? bytes.toString() : null
    const problem = pem === null ? undefined : certificatesProblem(pem, shellWord(files[at]!))
    return problem === undefined ? pem : fault(at, `the file ${files[at]} ${problem}`)
  }

  return {
    ...diagnostics,
    files,
    unseen,
    credentialNames,
    /** Reports whether the configuration itself held a secret. */
    hasLiteral: (): boolean => hasLiteral,
    /** The absolute path of an input. */
    pathOf,
    file,
    certificates,
    secret,
    privateKey,
    /** A certificate in PEM and its private key; each source with its key path. */
    async certificateWithKey(
      [certAt, certFile]: readonly [string, string],
      [keyAt, source]: readonly [string, SecretSource],
    ): Promise<{ cert: string; key: Secret } | null> {
      const cert = await certificates(certAt, certFile, 'name the PEM file of the certificate')
      const key = await privateKey(keyAt, source)
      if (cert === null || key === null) return null
      const problem = certificateProblem(cert, key.reveal())
      if (problem !== undefined) return fault(certAt, `the file ${files[certAt]} ${problem}`)
      const ofDates = certificateDatesProblem(cert, Date.now())
      if (ofDates !== undefined) warn(certAt, `the file ${files[certAt]} ${ofDates}`)
      return { cert, key }
    },
  }
}
