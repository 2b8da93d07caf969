// Reads the secrets, keys and certificates that a configuration names, one after the other at each load.
import type { KeyObject } from 'node:crypto'
import { dirname, join, resolve } from 'node:path'
import type { SecureContext } from 'node:tls'
import { withSystemFallback } from '../lib/error.ts'
import { parseRecord } from '../lib/input.ts'
import { Secret } from '../lib/secret.ts'
import { formatIssue, type ConfigIssue } from './faults.ts'
import { permissionFaults, readInput } from './read.ts'

type SecretSource =
  string | { readonly file: string } | { readonly credential: string } | { readonly env: string }

interface InputsOptions {
  readonly env: NodeJS.ProcessEnv
  /** The configuration file, absolute; inputs are relative to its directory. */
  readonly file: string
  /** systemd runs the daemon and not this process: a secret that only the daemon sees is a warning then. */
  readonly isElsewhere?: boolean | undefined
}

export type Inputs = ReturnType<typeof createInputs>

/**
 * Reads what a configuration names, and collects the faults. `at` is the key path of a setting. A function that cannot
 * give what is named reports why, and gives ''.
 */
export function createInputs({ env, file: configFile, isElsewhere = false }: InputsOptions) {
  const found = {
    faults: [] as ConfigIssue[],
    warnings: [] as string[],
    /** Every file that was read or should have been, absolute, by key path. */
    files: {} as Record<string, string>,
    /** The settings whose secret only the daemon sees. */
    unseen: [] as string[],
    /** The settings that hold the secret themselves. */
    literals: [] as string[],
    /** Names of systemd credentials. */
    credentials: [] as string[],
  }

  const pathOf = (path: string): string => resolve(dirname(configFile), path)
  const warn = (at: string, sentence: string): void => void found.warnings.push(formatIssue({ at, sentence }))
  const fault = (at: string, sentence: string): null => {
    found.faults.push({ at, sentence })
    return null
  }

  async function file(at: string, path: string, holdsSecret: boolean): Promise<string | null> {
    const named = pathOf(path)
    found.files[at] = named
    const reading = await readInput(named)
    if (reading === null)
      return fault(at, `the file ${named} is not there: make it (a secret with mode 0640), or name another`)
    if ('problem' in reading) return fault(at, `the file ${named} ${reading.problem}`)
    for (const sentence of permissionFaults(named, reading, { holdsSecret }))
      fault(at, `the file ${named} ${sentence}`)
    return reading.bytes.toString()
  }

  /** systemd sets owner and mode, and may hide it from everybody but the daemon. */
  async function credential(at: string, name: string): Promise<string | null> {
    found.credentials.push(name)
    const place = env['CREDENTIALS_DIRECTORY']
    const reading = place ? await readInput(join(place, name)) : null
    if (reading !== null && 'bytes' in reading) return reading.bytes.toString()
    const remedy = `add LoadCredential=${name}:/PATH to the unit and restart it, or use { "file": PATH }`
    const what = place ? 'is not there' : 'needs $CREDENTIALS_DIRECTORY'
    return notThere(at, `the systemd credential ${name} ${what}: ${remedy}`)
  }

  function notThere(at: string, sentence: string): null {
    if (!isElsewhere) return fault(at, sentence)
    found.unseen.push(at)
    warn(at, `cannot be checked from here, because only the daemon sees it: ${sentence}`)
    return null
  }

  /** Null: reported. */
  async function read(at: string, source: SecretSource): Promise<string | null> {
    if (typeof source === 'string') {
      found.literals.push(at)
      return source
    }
    if ('env' in source) {
      const remedy = 'set it where kyc-tokend starts (EnvironmentFile= of the unit), or use { "file": PATH }'
      return env[source.env] ?? notThere(at, `the environment variable ${source.env} is not set: ${remedy}`)
    }
    const reading = 'file' in source ? file(at, source.file, true) : credential(at, source.credential)
    const text = await reading
    return text && withoutNewline(text)
  }

  return {
    ...found,
    env,
    configFile,
    /** Returns null, the value of a faulty setting. */
    fault,
    warn,
    /** The absolute path of an input. */
    pathOf,
    async secret(at: string, source: SecretSource): Promise<Secret> {
      const text = await read(at, source)
      const refusal = text === null ? undefined : secretRefusal(text)
      if (refusal !== undefined) fault(at, refusal)
      return new Secret(text ?? '')
    },
    /** A private key in PEM or as a JWK, without a passphrase. */
    async privateKey(at: string, source: SecretSource): Promise<Secret> {
      const text = await read(at, source)
      const isReadable = text !== null && privateKeyOf(text) !== null
      if (text !== null && !isReadable)
        fault(at, 'holds no private key that can be read: write it in PEM or as a JWK, without a passphrase')
      return new Secret(isReadable ? text : '')
    },
    /** Certificates in PEM. */
    async certificates(at: string, path: string): Promise<string> {
      const pem = await file(at, path, false)
      if (pem === null || certificateLife(pem) !== null) return pem ?? ''
      fault(at, 'holds no certificate that can be read: name a PEM file with "-----BEGIN CERTIFICATE-----"')
      return ''
    },
  }
}

/** Why a secret cannot be used, as the words that follow its name. */
export function secretRefusal(text: string): string | undefined {
  if (text.trim() === '') return 'is empty: put the secret there'
  // U+FFFD stands for what is not UTF-8.
  return /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\uFFFD]/u.test(text)
    ? 'holds a line break or another invisible character: write the secret alone, on one line, in UTF-8'
    : undefined
}

/** One newline at the end is how editors and `echo` end a file. */
export function withoutNewline(text: string): string {
  return text.replace(/\r?\n$/, '')
}

/** It is loaded at the first call: most commands need none of it. */
const crypto = () => process.getBuiltinModule('node:crypto')

/** The private key in a text; null: none that can be read without a passphrase. */
export function privateKeyOf(text: string): KeyObject | null {
  const jwk = text.trimStart().startsWith('{') ? parseRecord(text) : undefined
  const key = jwk ? ({ key: jwk, format: 'jwk' } as const) : text
  return withSystemFallback(null, () => crypto().createPrivateKey(key))
}

/** When the first certificate in a text is valid, in ms since the epoch; null: none is there that can be read. */
export function certificateLife(pem: string): { fromMs: number; endMs: number } | null {
  return withSystemFallback(null, () => {
    const { validFrom, validTo } = new (crypto().X509Certificate)(pem)
    return { fromMs: Date.parse(validFrom), endMs: Date.parse(validTo) }
  })
}

/**
 * The context of TLS connections, made once and not for each of them, because each takes memory. `ca`: further
 * authorities. `own`: the certificate that is presented. Throws if it does not belong to its key.
 */
export async function createSecureContext(
  { ca, isBuiltInTrusted = true }: { readonly ca: string | null; readonly isBuiltInTrusted?: boolean },
  own: { readonly cert: string; readonly key: Secret } | null = null,
): Promise<SecureContext> {
  const tls = await import('node:tls')
  const builtIn = isBuiltInTrusted ? tls.getCACertificates('default') : []
  const trusted = ca === null && isBuiltInTrusted ? {} : { ca: [...builtIn, ...(ca === null ? [] : [ca])] }
  return tls.createSecureContext({ ...trusted, ...(own && { cert: own.cert, key: own.key.reveal() }) })
}
