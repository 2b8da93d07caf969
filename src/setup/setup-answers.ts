// The answers on which `setup` builds: a configuration and its secrets, from options, a document or a person.
import { createReadStream } from 'node:fs'
import { urlProblem } from '../config/kinds.ts'
import { secretRefusal, withoutNewline } from '../config/secrets.ts'
import { parseInstant } from '../lib/duration.ts'
import { errorMessage, UsageError } from '../lib/error.ts'
import { isRecord, parseRecord, readLimited } from '../lib/input.ts'
import { bothGiven } from '../terminal/ask.ts'
import type { Invocation } from '../terminal/command.ts'
import { createPrompt, isTerminal } from '../terminal/prompt.ts'

export interface Answers {
  /** Settings of the configuration, without those secrets. Null: the document is no JSON object. */
  readonly settings: Readonly<Record<string, unknown>> | null
  /** Texts that get files of their own; undefined: the pair has none, or names a source itself. */
  readonly secrets: { readonly apiKey?: string | undefined; readonly apiSecret?: string | undefined }
  /** The document as it came; undefined: the answers are options, beside which former settings stay. */
  readonly document?: string
}

interface Field {
  readonly option: string
  readonly question: string
  /** The option names a file with the answer; at a terminal it is typed unseen. */
  readonly isSecret?: true
  /** Why it cannot be right, without a subject; never quotes a secret. */
  readonly problemOf: (text: string) => string | undefined
}
type Name = 'baseUrl' | 'tokenUrl' | 'apiKey' | 'apiSecret' | 'expiresAt'

/** In the order of the questions. `tokenUrl`: of OAuth2 alone. `expiresAt` may be left out. */
const fields: Readonly<Record<Name, Field>> = {
  baseUrl: {
    option: 'base-url',
    question: 'Address of the service (https://…)',
    problemOf: (text) => urlProblem(text, 'base'),
  },
  tokenUrl: {
    option: 'token-url',
    question: 'Where it gives tokens (a path after the address such as /oauth/token, or https://…)',
    problemOf: (text) => urlProblem(text, 'token'),
  },
  apiKey: {
    option: 'api-key-file',
    question: 'API key or client id (not shown)',
    isSecret: true,
    problemOf: secretRefusal,
  },
  apiSecret: {
    option: 'api-secret-file',
    question: 'API secret or client secret (not shown)',
    isSecret: true,
    problemOf: secretRefusal,
  },
  expiresAt: {
    option: 'expires-at',
    question: 'When key and secret end, such as 2027-03-01 [not known]',
    problemOf: (text) =>
      text === '' || parseInstant(text) !== undefined ? undefined : 'must be a date such as 2027-03-01',
  },
}
const MAX_FILE_BYTES = 1_048_576

/** `refuse` is called before a person is asked. Throws UsageError (64) for what lacks or cannot be right. */
export async function readAnswers(invocation: Invocation, refuse: () => void): Promise<Answers> {
  const { options } = invocation
  if (options['from'] === undefined) return optionAnswers(invocation, refuse)
  const names = [...Object.values(fields).map(({ option }) => option), 'kind']
  const both = names.find((name) => options[name] !== undefined)
  if (both !== undefined) throw bothGiven(`--from and --${both}`)
  const document = await textOf('--from', String(options['from']), invocation)
  const settings = parseRecord(document)
  if (settings === undefined) return { settings: null, secrets: {}, document }
  const { apiKey, apiSecret } = isRecord(settings['credentials']) ? settings['credentials'] : {}
  const textIn = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)
  return { settings, secrets: { apiKey: textIn(apiKey), apiSecret: textIn(apiSecret) }, document }
}

/** The answers from the options; what they lack is asked at the terminal. */
async function optionAnswers(invocation: Invocation, refuse: () => void): Promise<Answers> {
  const { options, stdin } = invocation
  const isOAuth2 = options['kind'] === 'oauth2'
  const texts: Partial<Record<Name, string>> = {}
  const missing: [Name, Field][] = []
  for (const [name, field] of Object.entries(fields) as [Name, Field][]) {
    const { option, isSecret, problemOf } = field
    const word = options[option]
    if (word === undefined) {
      if (name !== 'tokenUrl' || isOAuth2) missing.push([name, field])
      continue
    }
    texts[name] = isSecret ? await textOf(`--${option}`, String(word), invocation) : String(word)
    const problem = problemOf(texts[name])
    if (problem !== undefined) throw new UsageError(`The answer of --${option} ${problem}.`)
  }
  const needed = missing.filter(([name]) => name !== 'expiresAt').map(([, { option }]) => `--${option}`)
  if (needed.length > 0) {
    if (!isTerminal(stdin))
      throw new UsageError(`There is no terminal to ask at: give ${needed.join(', ')}, or --from.`)
    refuse()
    using prompt = createPrompt(invocation)
    for (const [name, { question, isSecret, problemOf }] of missing)
      texts[name] = await prompt.ask(question, { isHidden: isSecret === true, problemOf })
  }
  const { baseUrl, tokenUrl, expiresAt, ...secrets } = texts
  const service = { ...(isOAuth2 && { preset: 'oauth2' }), ...(tokenUrl && { tokenUrl }) }
  const hasService = Object.keys(service).length > 0
  const credentials = expiresAt ? { expiresAt } : {}
  return { settings: { baseUrl, ...(hasService && { service }), credentials }, secrets }
}

/** The content of a file, or of standard input (`-`), without its newline. Throws UsageError (64). */
async function textOf(by: string, path: string, { stdin }: Invocation): Promise<string> {
  const stream = (path === '-' ? stdin : createReadStream(path)) as AsyncIterable<Buffer>
  const bytes = await readLimited(stream, { maxBytes: MAX_FILE_BYTES }).catch((cause: unknown) => {
    const message = `The file of ${by} cannot be read (${errorMessage(cause)}): name one that can.`
    throw new UsageError(message, { cause })
  })
  if (bytes === undefined) throw new UsageError(`The file of ${by} holds more than 1 MiB: name another.`)
  return withoutNewline(bytes.toString())
}
