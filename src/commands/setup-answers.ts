// The answers on which `setup` builds: the kind of service, its address, key and secret. They come from options, from a
// document, or from a person.
import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { baseUrlProblem, baseUrlWarning, tokenUrlProblem } from '../config/base-url.ts'
import { secretRefusal, withoutNewline } from '../config/inputs.ts'
import { ConfigError, type ConfigIssue } from '../config/issues.ts'
import { findJsonFault } from '../config/json-fault.ts'
import { validateDocument } from '../config/validate.ts'
import { holdsCertificates, privateKeyOf } from '../lib/crypto.ts'
import { errorMessage, UsageError, withSystemFallback } from '../lib/error.ts'
import { readLimited } from '../lib/input.ts'
import { decoded } from '../source/proxy.ts'
import type { Invocation } from './command.ts'
import { createPrompt, isTerminal } from './prompt.ts'
import { existing, existsError, type Answers, type Contents, type SetupFiles } from './setup-files.ts'

export const kinds = {
  json: 'JSON with key and secret',
  oauth2: 'OAuth2 client credentials',
  certificate: 'client certificate (mutual TLS)',
  assertion: 'signed assertion (JWT)',
  other: 'another way',
} as const
type Kind = keyof typeof kinds
const isKind = (text: string): text is Kind => Object.hasOwn(kinds, text)

type Name =
  'kind' | 'baseUrl' | 'tokenUrl' | 'apiKey' | 'apiSecret' | 'certificate' | 'key' | 'keyId' | 'expiresAt'
type Given = Partial<Record<Name, string>>

interface Field {
  readonly option: string
  /** The kinds of service that need it; undefined: all. */
  readonly kinds?: readonly Kind[]
  readonly question: string | ((kind: Kind) => string)
  readonly isOptional?: boolean
  /** The answer is the content of a file: at a terminal it is `typed` unseen, or the `path` is asked for. */
  readonly file?: 'typed' | 'path'
  /** The fault of an answer, as a sentence without its full stop. Never quotes a secret. */
  readonly problem: (text: string) => string | undefined
}

const KIND_QUESTION = [
  'How does the page of the vendor describe the login?',
  ...Object.entries(kinds).map(([kind, words]) => `  ${kind.padEnd(11)}  ${words}`),
  'Kind [json]',
].join('\n')
const OAUTH2_KINDS: readonly Kind[] = ['oauth2', 'certificate', 'assertion']

/** The fields, in the order of the questions. */
const fields: Readonly<Record<Name, Field>> = {
  kind: {
    option: 'kind',
    question: KIND_QUESTION,
    isOptional: true,
    problem: (text) =>
      text === '' || isKind(text) ? undefined : `Write one of ${Object.keys(kinds).join(', ')}`,
  },
  baseUrl: {
    option: 'base-url',
    question: 'Address of the service (https://…)',
    problem: problemWith('The address', (text) => baseUrlProblem(text) ?? baseUrlWarning(text)),
  },
  tokenUrl: {
    option: 'token-url',
    kinds: OAUTH2_KINDS,
    question: 'Where it gives tokens (a path after the address such as /oauth/token, or https://…)',
    problem: problemWith('The address', tokenUrlProblem),
  },
  apiKey: {
    option: 'api-key-file',
    question: (kind) => `${kind === 'json' ? 'API key' : 'Client ID'} (not shown)`,
    file: 'typed',
    problem: problemWith('The secret', secretRefusal),
  },
  apiSecret: {
    option: 'api-secret-file',
    kinds: ['json', 'oauth2'],
    question: (kind) => `${kind === 'json' ? 'API secret' : 'Client secret'} (not shown)`,
    file: 'typed',
    problem: problemWith('The secret', secretRefusal),
  },
  certificate: {
    option: 'certificate-file',
    kinds: ['certificate'],
    question: 'File with the client certificate (PEM)',
    file: 'path',
    problem: certificateProblem,
  },
  key: {
    option: 'private-key-file',
    kinds: ['certificate', 'assertion'],
    question: 'File with its private key (PEM, without a passphrase)',
    file: 'path',
    problem(text) {
      const key = privateKeyOf(text)
      return typeof key === 'string' ? `The file ${key}` : undefined
    },
  },
  keyId: {
    option: 'key-id',
    kinds: ['assertion'],
    question: 'Key id (kid) that the vendor gave to the key [none]',
    isOptional: true,
    problem: () => undefined,
  },
  expiresAt: {
    option: 'expires-at',
    question: 'When key and secret end, such as 2027-03-01 [not known]',
    isOptional: true,
    problem: (text) =>
      text === '' || !Number.isNaN(Date.parse(text)) ? undefined : 'Write a date such as 2027-03-01',
  },
}
const names = Object.keys(fields) as Name[]

const MAX_DOCUMENT_BYTES = 1_048_576

/** Throws UsageError (64) for what is missing or cannot be right, and ConfigError (78) for a faulty document. */
export async function readAnswers(invocation: Invocation, files: SetupFiles): Promise<Answers> {
  const { options } = invocation
  const document = options['from'] as string | undefined
  const answers =
    document === undefined
      ? settingsOf(await singleAnswers(invocation, files), files)
      : await documentAnswers(document, invocation)
  const path = options['ca-file'] as string | undefined
  const withCa = path === undefined ? answers : withAuthority(answers, files, readNamed('--ca-file', path))
  return options['proxy'] === true ? withProxy(withCa, invocation, files) : withCa
}

/** Asks for the certificate of the service's authority; undefined: there is none to give. */
export async function askAuthority(invocation: Invocation): Promise<string | undefined> {
  const { stdin, stderr, signal } = invocation
  using prompt = createPrompt({ input: stdin, output: stderr, signal })
  const question = "File with the certificate of the service's private authority (PEM) [none]"
  const problem = (path: string): string | undefined =>
    path === '' ? undefined : problemOfFile(path, certificateProblem)
  const path = await prompt.ask(question, { isHidden: false, problem })
  return path === '' ? undefined : readNamed(question, path)
}

export function withAuthority(answers: Answers, { contents }: SetupFiles, ca: string): Answers {
  const problem = certificateProblem(ca)
  if (problem !== undefined) throw new UsageError(`--ca-file: ${problem}.`)
  const request = { ...answers.request, caFile: basename(contents.ca) }
  return { ...answers, contents: { ...answers.contents, ca }, request }
}

/** Takes the proxy of the caller over, with its login as a secret, and says so. */
function withProxy(answers: Answers, { env, stdout }: Invocation, { contents }: SetupFiles): Answers {
  const text = env['HTTPS_PROXY'] || env['https_proxy'] || ''
  if (!URL.canParse(text))
    throw new UsageError('--proxy: HTTPS_PROXY is not set to a URL here: set it, or leave --proxy out.')
  const { protocol, host, username, password } = new URL(text)
  const url = `${protocol}//${host}`
  const login = username !== '' && {
    user: decoded(username),
    password: password === '' ? null : { file: basename(contents.proxyPassword) },
  }
  stdout.write(`The daemon will use the proxy ${url}, which HTTPS_PROXY names here\n`)
  return {
    ...answers,
    contents: {
      ...answers.contents,
      ...(password !== '' && { proxyPassword: decoded(password) }),
    },
    request: { ...answers.request, proxy: { url, ...login } },
  }
}

/** The answers from a configuration that contains key and secret. No fault quotes a value. */
async function documentAnswers(document: string, { options, stdin }: Invocation): Promise<Answers> {
  const both = Object.values(fields).find(({ option }) => options[option] !== undefined)
  if (both !== undefined)
    throw new UsageError(`--from and --${both.option} are both given: leave one of them out.`)
  if (document !== '-') return answersOf(readNamed('--from', document), document)
  const bytes = await readLimited(stdin as AsyncIterable<Buffer>, { maxBytes: MAX_DOCUMENT_BYTES })
  if (bytes === undefined) throw new UsageError('--from: there is more than 1 MiB on standard input.')
  return answersOf(bytes.toString(), 'standard input')
}

function answersOf(text: string, name: string): Answers {
  const syntax = findJsonFault(text)
  if (syntax !== undefined) throw new ConfigError([{ at: '', sentence: syntax }], name)
  const document: unknown = JSON.parse(text)
  const { faults: misshapen } = validateDocument(document)
  if (misshapen.length > 0) throw new ConfigError(misshapen, name)
  const { baseUrl, credentials, ...settings } = document as { baseUrl: string; credentials: Given }
  const { apiKey = '', apiSecret = '', expiresAt } = credentials
  const faults = Object.entries({ apiKey, apiSecret, baseUrl }).flatMap(([field, value]): ConfigIssue[] => {
    const at = field === 'baseUrl' ? field : `credentials.${field}`
    if (value === null && field === 'apiSecret') return []
    const sentence =
      typeof value === 'string'
        ? fields[field as Name].problem(value)
        : 'must be the text itself: setup writes it to a file of its own'
    return sentence === undefined ? [] : [{ at, sentence }]
  })
  if (faults.length > 0) throw new ConfigError(faults, name)
  const contents = { apiKey, ...(apiSecret !== null && { apiSecret }) }
  return { baseUrl, contents, expiresAt: expiresAt ?? undefined, settings, request: {} }
}

/** The answers from the options; what they lack is asked at the terminal. */
async function singleAnswers(invocation: Invocation, files: SetupFiles): Promise<Given> {
  const { options, stdin, stderr, signal } = invocation
  const given: Given = {}
  for (const name of names) {
    const { option, file, problem } = fields[name]
    const text = options[option]
    if (text === undefined) continue
    given[name] = file === undefined ? String(text) : readNamed(`--${option}`, String(text))
    const fault = problem(given[name])
    if (fault !== undefined) throw new UsageError(`--${option}: ${fault}.`)
  }
  const missing = (): Name[] =>
    names.filter((name) => given[name] === undefined && isNeeded(name, kindOf(given)))
  refuseOther(given)
  const absent = missing().filter((name) => fields[name].isOptional !== true)
  if (absent.length === 0) return given
  if (!isTerminal(stdin)) {
    const words = absent.map((name) => `--${fields[name].option}`)
    const last = words.pop()!
    throw new UsageError(
      `There is no terminal to ask at: give ${words.length > 0 ? `${words.join(', ')} and ` : ''}${last}, or --from.`,
    )
  }
  const there = existing([files.config, ...Object.values(files.contents), ...files.others])
  if (there.length > 0 && options['force'] !== true) throw existsError(there, 'add --force to replace it')
  using prompt = createPrompt({ input: stdin, output: stderr, signal })
  for (const name of names) {
    if (!missing().includes(name)) continue
    const { question, file, problem } = fields[name]
    const isPath = file === 'path'
    const answer = await prompt.ask(typeof question === 'string' ? question : question(kindOf(given)), {
      isHidden: file === 'typed',
      problem: isPath ? (path) => problemOfFile(path, problem) : problem,
    })
    given[name] = isPath ? readNamed('The answer', answer) : answer
    refuseOther(given)
  }
  return given
}

const kindOf = ({ kind = '' }: Given): Kind => (isKind(kind) ? kind : 'json')
const isNeeded = (name: Name, kind: Kind): boolean => fields[name].kinds?.includes(kind) ?? true

function refuseOther({ kind }: Given): void {
  if (kind !== 'other') return
  throw new UsageError(
    'Describe the service in a configuration and give that with --from FILE: other-services.md of the manual has the settings, and examples.',
  )
}

/** The settings of the kind of service, and the texts of the files that they name. */
function settingsOf(given: Given, { contents }: SetupFiles): Answers {
  const { baseUrl = '', tokenUrl, apiKey = '', apiSecret, certificate, key = '', keyId, expiresAt } = given
  const file = (name: keyof Contents): { file: string } => ({ file: basename(contents[name]) })
  const kind = kindOf(given)
  const oauth2 = { preset: 'oauth2', tokenUrl }
  const pair = { apiKey, ...(apiSecret !== undefined && { apiSecret }) }
  const common = { baseUrl, contents: pair, expiresAt: expiresAt || undefined, request: {} }
  if (kind === 'certificate')
    return {
      ...common,
      contents: { ...pair, certificate, clientKey: key },
      settings: { service: { ...oauth2, send: 'form', names: { apiKey: 'client_id', apiSecret: null } } },
      request: { clientCertificate: { certFile: file('certificate').file, key: file('clientKey') } },
    }
  if (kind === 'assertion') {
    const assertion = { key: file('assertionKey'), ...algorithmOf(key), ...(keyId && { keyId }) }
    return {
      ...common,
      contents: { ...pair, assertionKey: key },
      settings: { service: { ...oauth2, send: 'assertion', assertion } },
    }
  }
  if (kind === 'oauth2') return { ...common, settings: { service: oauth2 } }
  // A kind that was chosen replaces another one that is there.
  const service = tokenUrl === undefined ? null : { tokenUrl }
  return { ...common, settings: given.kind === undefined && service === null ? {} : { service } }
}

/** Of keys that are not RSA's, whose RS256 is the default. */
function algorithmOf(text: string): { algorithm?: string } {
  const key = privateKeyOf(text)
  const type = typeof key === 'string' ? undefined : key.asymmetricKeyType
  if (type === 'ec') return { algorithm: 'ES256' }
  return type === 'ed25519' ? { algorithm: 'EdDSA' } : {}
}

/** The content of a file without its newline. Throws UsageError (64). */
function readNamed(by: string, path: string): string {
  try {
    return withoutNewline(readFileSync(path, 'utf8'))
  } catch (error) {
    const message = `The file of ${by} cannot be read (${errorMessage(error)}): name one that can.`
    throw new UsageError(message, { cause: error })
  }
}

function problemOfFile(path: string, problem: Field['problem']): string | undefined {
  const text = withSystemFallback(undefined, () => readFileSync(path, 'utf8'))
  return text === undefined ? 'The file cannot be read: name one that can' : problem(withoutNewline(text))
}

function certificateProblem(text: string): string | undefined {
  return holdsCertificates(text) ? undefined : 'The file does not hold a certificate in PEM'
}

function problemWith(subject: string, problem: Field['problem']): Field['problem'] {
  return (text) => {
    const found = problem(text)
    return found === undefined ? undefined : `${subject} ${found}`
  }
}
