// Reads the secrets and certificates that a configuration names, at each load, one after the other.
import type { KeyObject } from 'node:crypto'
import { join, resolve } from 'node:path'
import { accountOfEnvironment } from '../host/account.ts'
import { createRemedies, rendered } from '../host/remedy.ts'
import { CONTROL_CHARACTER } from '../lib/display-text.ts'
import { Secret } from '../lib/secret.ts'
import { certificatesProblem, datesProblem, pairProblem, privateKeyOf } from './certificates.ts'
import type { Diagnostics } from './faults.ts'
import { permissionFaults, readInput } from './read.ts'
import type { SecretSource } from './schema.ts'

export interface InputsOptions {
  readonly env: NodeJS.ProcessEnv
  /** The directory of the configuration file, to which inputs are relative. */
  readonly directory: string
  /** systemd runs the daemon and not this process: a secret that only the daemon sees is a warning then. */
  readonly isElsewhere?: boolean | undefined
  readonly diagnostics: Diagnostics
}

export type Inputs = ReturnType<typeof createInputs>

/** `at` is the key path of a setting. A function that gives null has reported why, unless nothing was asked for. */
export function createInputs({ env, directory, isElsewhere = false, diagnostics }: InputsOptions) {
  const { fault, warn } = diagnostics
  /** Every file that was read or should have been, absolute, by key path. */
  const files: Record<string, string> = {}
  /** The settings whose secret only the daemon sees. */
  const unseen: string[] = []
  const credentialNames: string[] = []

  const pathOf = (path: string): string => resolve(directory, path)

  async function file(at: string, path: string, { holdsSecret = false } = {}): Promise<string | null> {
    const named = pathOf(path)
    files[at] = named
    const reading = await readInput(named)
    if (reading === null) {
      const remedy = holdsSecret ? 'make it, with mode 0600 or 0640, or name another' : 'name a PEM file'
      return fault(at, `the file ${named} is not there: ${remedy}`)
    }
    if ('problem' in reading) return fault(at, `the file ${named} ${reading.problem}`)
    const { bytes, stats, isProjected } = reading
    for (const sentence of permissionFaults(named, stats, { holdsSecret, isProjected }))
      fault(at, `the file ${named} ${sentence}`)
    return bytes.toString()
  }

  /** systemd sets owner and mode, and may hide it from everybody but the daemon. */
  async function credential(at: string, name: string): Promise<string | null> {
    credentialNames.push(name)
    const place = env['CREDENTIALS_DIRECTORY']
    const reading = place ? await readInput(join(place, name)) : null
    if (reading !== null && 'bytes' in reading) return reading.bytes.toString()
    const { edit, restart } = createRemedies({ account: accountOfEnvironment(env), isUnit: true }).commands
    const text =
      `the systemd credential ${name} ${place ? 'is not there' : 'needs $CREDENTIALS_DIRECTORY'}: ` +
      `add LoadCredential=${name}:/PATH to the unit, or use { "file": PATH }`
    return notThere(at, rendered({ text, commands: [...edit, ...restart] }))
  }

  function notThere(at: string, sentence: string): null {
    if (!isElsewhere) return fault(at, sentence)
    unseen.push(at)
    warn(at, `cannot be checked from here, because only the daemon sees it: ${sentence}`)
    return null
  }

  async function read(at: string, source: SecretSource): Promise<string | null> {
    if (typeof source === 'string') return source
    if ('env' in source) {
      const text = env[source.env]
      const remedy =
        'set it where kyc-tokend is started (in the unit by EnvironmentFile=), or use { "file": PATH }'
      return text ?? notThere(at, `the environment variable ${source.env} is not set: ${remedy}`)
    }
    const text = await ('file' in source
      ? file(at, source.file, { holdsSecret: true })
      : credential(at, source.credential))
    return text === null ? null : withoutNewline(text)
  }

  /** The PEM text; null, too, if no file is named. */
  async function certificates(at: string, path: string | null): Promise<string | null> {
    const pem = path === null ? null : await file(at, path)
    const problem = pem === null ? undefined : certificatesProblem(pem)
    return problem === undefined ? pem : fault(at, problem)
  }

  /** A private key in PEM or as a JWK, without a passphrase. `problemOf`: why it does not fit. */
  async function privateKey(
    at: string,
    source: SecretSource,
    problemOf: (key: KeyObject) => string | undefined = () => undefined,
  ): Promise<Secret | null> {
    const text = await read(at, source)
    if (text === null) return null
    const key = privateKeyOf(text)
    const problem = typeof key === 'string' ? key : problemOf(key)
    return problem === undefined ? new Secret(text) : fault(at, problem)
  }

  return {
    ...diagnostics,
    files,
    unseen,
    credentialNames,
    /** The absolute path of an input. */
    pathOf,
    certificates,
    privateKey,
    /** Null, too, if there is no source. */
    async secret(at: string, source: SecretSource | null): Promise<Secret | null> {
      const text = source === null ? null : await read(at, source)
      if (text === null) return null
      const [refusal, mistake] = [secretRefusal(text), sentenceFor(text, MISTAKES)]
      if (refusal !== undefined) return fault(at, refusal)
      if (mistake !== undefined) warn(at, mistake)
      return new Secret(text)
    },
    /** A certificate in PEM and its private key, which are settings below `at`. */
    async certificateWithKey(
      at: string,
      { certFile, key: source }: { certFile: string; key: SecretSource },
    ): Promise<{ cert: string; key: Secret } | null> {
      const cert = await certificates(`${at}.certFile`, certFile)
      const key = await privateKey(`${at}.key`, source)
      if (cert === null || key === null) return null
      const [problem, ofDates] = [pairProblem(cert, key.reveal()), datesProblem(cert, Date.now())]
      if (problem !== undefined) return fault(`${at}.certFile`, problem)
      if (ofDates !== undefined) warn(`${at}.certFile`, ofDates)
      return { cert, key }
    },
  }
}

/** Each sentence follows the key path of the setting. */
type Sentences = readonly (readonly [RegExp, string])[]

const REFUSALS: Sentences = [
  [/^\s*$/, 'is empty: put the secret there'],
  [CONTROL_CHARACTER, 'holds a line break or another control character: write the secret alone, on one line'],
  [/[\p{Cf}\p{Zl}\p{Zp}]/u, 'holds an invisible character, such as a byte order mark: copy the secret again'],
  [/\uFFFD/, 'is not valid UTF-8: write the secret as plain text'],
]
/** Only warnings: such a secret may be right. */
const MISTAKES: Sentences = [
  [/^(["'`]).*\1$/, 'is in quotes, which are part of it: write the secret without them'],
  [/^\s|\s$/, 'begins or ends with a blank, which is part of it: remove that'],
  [/^.{1,7}$/, 'has fewer than 8 characters: check that it is whole'],
]

/** Why a secret cannot be used, as the words that follow its name. */
export function secretRefusal(value: string): string | undefined {
  return sentenceFor(value, REFUSALS)
}

function sentenceFor(value: string, sentences: Sentences): string | undefined {
  return sentences.find(([pattern]) => pattern.test(value))?.[1]
}

/** One newline at the end is how editors and `echo` end a file. */
export function withoutNewline(text: string): string {
  return text.replace(/\r?\n$/, '')
}
