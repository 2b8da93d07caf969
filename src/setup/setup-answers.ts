// The answers on which `setup` builds: the kind of service, its address, key and secret. They come from
// options, from a document, or from a person.
import { basename, resolve } from 'node:path'
import { baseUrlProblem, baseUrlWarning, tokenUrlProblem } from '../config/base-url.ts'
import { ConfigError, type ConfigIssue } from '../config/issues.ts'
import { findJsonFault } from '../config/json-fault.ts'
import { validateDocument } from '../config/schema.ts'
import { secretRefusal, withoutNewline } from '../config/secret-text.ts'
import { certificatesProblem, privateKeyOf } from '../config/certificates.ts'
import { parseInstant } from '../lib/duration.ts'
import { UsageError } from '../lib/error.ts'
import { loginOf, proxyUrlOf } from '../source/proxy.ts'
import { bothGiven } from '../terminal/ask.ts'
import type { Invocation } from '../terminal/command.ts'
import { readNamed } from '../terminal/named-file.ts'
import { createPrompt, isTerminal, type Prompt } from '../terminal/prompt.ts'
import { kinds, type Kind } from './setup-kinds.ts'
import { existing, existsError, type Answers, type Contents, type SetupFiles } from './setup-files.ts'

type Name =
  | 'kind'
  | 'baseUrl'
  | 'tokenUrl'
  | 'apiKey'
  | 'apiSecret'
  | 'certificate'
  | 'key'
  | 'keyId'
  | 'assertion'
  | 'expiresAt'
type Texts = Partial<Record<Name, string>>

interface Question {
  readonly question: string
  /** The answer is the content of a file: at a terminal it is `typed` unseen, or the `path` is asked for. */
  readonly file?: 'typed' | 'path'
  /** The fault of an answer, as a sentence without its full stop. Never quotes a secret. */
  readonly problem: (text: string) => string | undefined
}
interface Field extends Omit<Question, 'question'> {
  /** Null: nobody is asked. */
  readonly question: string | null
  readonly option: string
  /** The kinds of service that need it; undefined: all. */
  readonly kinds?: readonly Kind[]
  readonly isOptional?: boolean
}

const KIND_QUESTION = [
  'How does the page of the vendor describe the login?',
  ...Object.entries(kinds).map(([kind, words]) => `  ${kind.padEnd(11)}  ${words}`),
  'Kind [json]',
].join('\n')
const OTHER_KIND =
  'Describe the service in a configuration and give that with --from FILE: other-services.md of the ' +
  'manual has the settings, and examples'
const OAUTH2_KINDS: readonly Kind[] = ['oauth2', 'certificate', 'assertion']

/** The fields, in the order of the questions. */
const fields: Readonly<Record<Name, Field>> = {
  kind: {
    option: 'kind',
    question: KIND_QUESTION,
    isOptional: true,
    problem(text) {
      if (text === 'other') return OTHER_KIND
      return text === '' || Object.hasOwn(kinds, text)
        ? undefined
        : `Write one of ${Object.keys(kinds).join(', ')}`
    },
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
    question: 'API key or client id (not shown)',
    file: 'typed',
    problem: problemWith('The secret', secretRefusal),
  },
  apiSecret: {
    option: 'api-secret-file',
    kinds: ['json', 'oauth2'],
    question: 'API secret or client secret (not shown)',
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
  assertion: {
    option: 'assertion-file',
    kinds: ['assertion'],
    // By its option only: a person is asked for the key that signs.
    question: null,
    isOptional: true,
    problem: () => undefined,
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
      text === '' || parseInstant(text) !== undefined ? undefined : 'Write a date such as 2027-03-01',
  },
}
const names = Object.keys(fields) as Name[]

const MAX_FILE_BYTES = 1_048_576

/** Throws UsageError (64) for what lacks or cannot be right, and ConfigError (78) for a faulty document. */
export async function readAnswers(invocation: Invocation, files: SetupFiles): Promise<Answers> {
  const { options } = invocation
  let answers =
    options['from'] === undefined
      ? settingsOf(await singleAnswers(invocation, files), files)
      : await documentAnswers(invocation)
  const authority = options['ca-file']
  if (authority !== undefined)
    answers = withAuthority(answers, files, await textOf('--ca-file', authority, invocation))
  return options['proxy'] === true ? withProxy(answers, invocation, files) : answers
}

/** Asks for the certificate of the service's authority; empty: there is none to give. */
export async function askAuthority(invocation: Invocation): Promise<string> {
  using prompt = createPrompt(invocation)
  return await askFor(prompt, invocation, {
    question: "File with the certificate of the service's private authority (PEM) [none]",
    file: 'path',
    problem: (text) => (text === '' ? undefined : certificateProblem(text)),
  })
}

export function withAuthority(answers: Answers, { contents }: SetupFiles, ca: string): Answers {
  const problem = certificateProblem(ca)
  if (problem !== undefined) throw new UsageError(`--ca-file: ${problem}.`)
  const request = { ...answers.request, caFile: basename(contents.ca) }
  return { ...answers, contents: { ...answers.contents, ca }, request }
}

/** Takes the proxy of the caller over, with its login as a secret, and says so. */
function withProxy(answers: Answers, { env, stdout }: Invocation, { contents }: SetupFiles): Answers {
  const proxy = proxyUrlOf(env)
  if (proxy === null)
    throw new UsageError('--proxy: HTTPS_PROXY is not set here: set it, or leave --proxy out.')
  const url = `${proxy.protocol}//${proxy.host}`
  const { user, password } = loginOf(proxy)
  const login = user !== '' && {
    user,
    password: password === '' ? null : { file: basename(contents.proxyPassword) },
  }
  stdout.write(`The daemon will use the proxy ${url}, which HTTPS_PROXY names here\n`)
  return {
    ...answers,
    contents: { ...answers.contents, ...(password !== '' && { proxyPassword: password }) },
    request: { ...answers.request, proxy: { url, ...login } },
  }
}

/** The answers from a configuration that contains key and secret. No fault quotes a value. */
async function documentAnswers(invocation: Invocation): Promise<Answers> {
  const { options } = invocation
  const both = Object.values(fields).find(({ option }) => options[option] !== undefined)
  if (both !== undefined) throw bothGiven(`--from and --${both.option}`)
  const path = String(options['from'])
  const name = path === '-' ? 'standard input' : path
  const text = await textOf('--from', path, invocation)
  const syntax = findJsonFault(text)
  if (syntax !== undefined) throw new ConfigError([{ at: '', sentence: syntax }], name)
  const document: unknown = JSON.parse(text)
  const { faults: misshapen } = validateDocument(document)
  if (misshapen.length > 0) throw new ConfigError(misshapen, name)
  const { baseUrl, credentials, ...settings } = document as { baseUrl: string; credentials: Texts }
  const { apiKey = '', apiSecret = '', expiresAt } = credentials
  const [hasKey, hasSecret] = [apiKey !== null, apiSecret !== null]
  const faults = [
    ...(hasKey ? issueAt('credentials.apiKey', secretProblem(apiKey)) : []),
    ...(hasSecret ? issueAt('credentials.apiSecret', secretProblem(apiSecret)) : []),
    ...issueAt('baseUrl', fields.baseUrl.problem(baseUrl)),
  ]
  if (faults.length > 0) throw new ConfigError(faults, name)
  const contents = { ...(hasKey && { apiKey }), ...(hasSecret && { apiSecret }) }
  return { baseUrl, contents, expiresAt: expiresAt ?? undefined, settings, request: {} }
}

function secretProblem(value: unknown): string | undefined {
  if (typeof value === 'string') return fields.apiKey.problem(value)
  return 'must be the text itself: setup writes it to a file of its own'
}

function issueAt(at: string, sentence: string | undefined): ConfigIssue[] {
  return sentence === undefined ? [] : [{ at, sentence }]
}

/** The answers from the options; what they lack is asked at the terminal. */
async function singleAnswers(invocation: Invocation, files: SetupFiles): Promise<Texts> {
  const { options } = invocation
  const texts: Texts = {}
  for (const name of names) {
    const { option, file, problem } = fields[name]
    const word = options[option]
    if (word === undefined) continue
    const text = file === undefined ? String(word) : await textOf(`--${option}`, word, invocation)
    const fault = problem(text)
    if (fault !== undefined) throw new UsageError(`--${option}: ${fault}.`)
    texts[name] = text
  }
  const { assertion } = texts
  if (assertion !== undefined && (kindOf(texts) !== 'assertion' || texts.key !== undefined))
    throw new UsageError('--assertion-file is for --kind assertion, without --private-key-file.')
  const isMissing = (name: Name): boolean =>
    texts[name] === undefined &&
    (fields[name].kinds?.includes(kindOf(texts)) ?? true) &&
    !(assertion !== undefined && REPLACED_BY_ASSERTION.has(name))
  const needed = names.filter((name) => isMissing(name) && fields[name].isOptional !== true)
  if (needed.length === 0) return texts
  if (!isTerminal(invocation.stdin)) {
    const words = new Intl.ListFormat('en-GB').format(needed.map((name) => `--${fields[name].option}`))
    throw new UsageError(`There is no terminal to ask at: give ${words}, or --from.`)
  }
  const there = existing([files.config, ...Object.values(files.contents), ...files.others])
  if (there.length > 0 && options['force'] !== true) throw existsError(there, 'add --force to replace it')
  using prompt = createPrompt(invocation)
  for (const name of names) {
    const { question, ...field } = fields[name]
    if (question !== null && isMissing(name))
      texts[name] = await askFor(prompt, invocation, { ...field, question })
  }
  return texts
}

/** A ready-made assertion says all this itself. */
const REPLACED_BY_ASSERTION = new Set<Name>(['apiKey', 'key', 'keyId'])

/** Asks until an answer has no problem: gives what is typed, or the content of the file that is named. */
async function askFor(
  prompt: Prompt,
  invocation: Invocation,
  { question, file, problem }: Question,
): Promise<string> {
  let text = ''
  await prompt.ask(question, {
    isHidden: file === 'typed',
    async problem(typed) {
      try {
        text = file === 'path' && typed !== '' ? await textOf('the answer', typed, invocation) : typed
        return problem(text)
      } catch (error) {
        if (error instanceof UsageError) return error.message
        throw error
      }
    },
  })
  return text
}

function kindOf({ kind }: Texts): Kind {
  return (kind || 'json') as Kind
}

/** The settings of the kind of service, and the texts of the files that they name. */
function settingsOf(texts: Texts, { contents }: SetupFiles): Answers {
  const { baseUrl = '', tokenUrl, apiKey, apiSecret, certificate, key = '', keyId, expiresAt } = texts
  const file = (name: keyof Contents): { file: string } => ({ file: basename(contents[name]) })
  const kind = kindOf(texts)
  const oauth2 = { preset: 'oauth2', tokenUrl }
  const pair = { ...(apiKey !== undefined && { apiKey }), ...(apiSecret !== undefined && { apiSecret }) }
  const common = { baseUrl, contents: pair, expiresAt: expiresAt || undefined, request: {} }
  if (kind === 'certificate')
    return {
      ...common,
      contents: { ...pair, certificate, clientKey: key },
      settings: { service: { ...oauth2, send: 'form', names: { apiKey: 'client_id', apiSecret: null } } },
      request: { clientCertificate: { certFile: file('certificate').file, key: file('clientKey') } },
    }
  if (texts.assertion !== undefined) {
    const assertion = { file: resolve(texts.assertion) }
    return { ...common, settings: { service: { ...oauth2, send: 'assertion', assertion } } }
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
  return { ...common, settings: texts.kind === undefined && service === null ? {} : { service } }
}

/** Of keys that are not RSA's, whose RS256 is the default. */
function algorithmOf(text: string): { algorithm?: string } {
  const key = privateKeyOf(text)
  const type = typeof key === 'string' ? undefined : key.asymmetricKeyType
  if (type === 'ec') return { algorithm: 'ES256' }
  return type === 'ed25519' ? { algorithm: 'EdDSA' } : {}
}

/** The content of a file without its newline. Throws UsageError (64). */
async function textOf(by: string, path: string | boolean, invocation: Invocation): Promise<string> {
  const bytes = await readNamed({ by, path: String(path), maxBytes: MAX_FILE_BYTES }, invocation)
  if (bytes === undefined) throw new UsageError(`The file of ${by} holds more than 1 MiB: name another.`)
  return withoutNewline(bytes.toString())
}

function certificateProblem(text: string): string | undefined {
  const problem = certificatesProblem(text)
  return problem && `The file ${problem}`
}

function problemWith(subject: string, problem: Question['problem']): Question['problem'] {
  return (text) => {
    const found = problem(text)
    return found === undefined ? undefined : `${subject} ${found}`
  }
}
