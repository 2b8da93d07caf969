// The answers on which `setup` builds: a configuration and its secrets, from options, a document or a person.
import { baseUrlProblem, tokenUrlProblem } from '../config/urls.ts'
import { secretRefusal, withoutNewline } from '../config/secrets.ts'
import { parseInstant } from '../lib/duration.ts'
import { UsageError } from '../lib/error.ts'
import { isRecord, parseJson } from '../lib/input.ts'
import { bothGiven } from '../terminal/ask.ts'
import type { Invocation } from '../terminal/command.ts'
import { readNamed } from '../terminal/named-file.ts'
import { createPrompt, isTerminal } from '../terminal/prompt.ts'

/** Texts that get files of their own; undefined: the pair has none, or names a source itself. */
export interface Secrets {
  readonly apiKey?: string | undefined
  readonly apiSecret?: string | undefined
}
export interface Answers {
  /** Settings of the configuration, without those secrets. Null: the document is no JSON object. */
  readonly settings: Readonly<Record<string, unknown>> | null
  readonly secrets: Secrets
  /** The document as it came; undefined: the answers are options, beside which former settings stay. */
  readonly document?: string
}

interface Field {
  readonly option: string
  readonly question: string
  /** The option names a file with the answer; at a terminal it is typed unseen. */
  readonly isSecret?: true
  readonly isOptional?: true
  /** As a sentence without its full stop; never quotes a secret. */
  readonly problem: (text: string) => string | undefined
}
type Name = 'baseUrl' | 'tokenUrl' | 'apiKey' | 'apiSecret' | 'expiresAt'

/** In the order of the questions. `tokenUrl`: of OAuth2 alone. */
const fields: Readonly<Record<Name, Field>> = {
  baseUrl: {
    option: 'base-url',
    question: 'Address of the service (https://…)',
    problem: (text) => prefixed('The address', baseUrlProblem(text)),
  },
  tokenUrl: {
    option: 'token-url',
    question: 'Where it gives tokens (a path after the address such as /oauth/token, or https://…)',
    problem: (text) => prefixed('The address', tokenUrlProblem(text)),
  },
  apiKey: {
    option: 'api-key-file',
    question: 'API key or client id (not shown)',
    isSecret: true,
    problem: (text) => prefixed('The secret', secretRefusal(text)),
  },
  apiSecret: {
    option: 'api-secret-file',
    question: 'API secret or client secret (not shown)',
    isSecret: true,
    problem: (text) => prefixed('The secret', secretRefusal(text)),
  },
  expiresAt: {
    option: 'expires-at',
    question: 'When key and secret end, such as 2027-03-01 [not known]',
    isOptional: true,
    problem: (text) =>
      text === '' || parseInstant(text) !== undefined ? undefined : 'Write a date such as 2027-03-01',
  },
}
const MAX_FILE_BYTES = 1_048_576

/** `refuse` is called before a person is asked. Throws UsageError (64) for what lacks or cannot be right. */
export async function readAnswers(invocation: Invocation, refuse: () => void): Promise<Answers> {
  const { options } = invocation
  if (options['from'] === undefined) return optionAnswers(invocation, refuse)
  const both = [...Object.values(fields).map(({ option }) => option), 'kind'].find(
    (name) => options[name] !== undefined,
  )
  if (both !== undefined) throw bothGiven(`--from and --${both}`)
  const document = await textOf('--from', String(options['from']), invocation)
  const parsed = parseJson(document)
  if (!isRecord(parsed)) return { settings: null, secrets: {}, document }
  const { apiKey, apiSecret } = isRecord(parsed['credentials']) ? parsed['credentials'] : {}
  return { settings: parsed, secrets: { apiKey: textIn(apiKey), apiSecret: textIn(apiSecret) }, document }
}

const textIn = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)

/** The answers from the options; what they lack is asked at the terminal. */
async function optionAnswers(invocation: Invocation, refuse: () => void): Promise<Answers> {
  const { options, stdin } = invocation
  const isOAuth2 = options['kind'] === 'oauth2'
  const texts: Partial<Record<Name, string>> = {}
  const missing: Name[] = []
  for (const [name, { option, isSecret, problem }] of Object.entries(fields) as [Name, Field][]) {
    const word = options[option]
    if (word === undefined) {
      if (name !== 'tokenUrl' || isOAuth2) missing.push(name)
      continue
    }
    texts[name] = isSecret ? await textOf(`--${option}`, String(word), invocation) : String(word)
    const fault = problem(texts[name])
    if (fault !== undefined) throw new UsageError(`--${option}: ${fault}.`)
  }
  const needed = missing.filter((name) => fields[name].isOptional !== true)
  if (needed.length > 0) {
    const words = new Intl.ListFormat('en-GB').format(needed.map((name) => `--${fields[name].option}`))
    if (!isTerminal(stdin)) throw new UsageError(`There is no terminal to ask at: give ${words}, or --from.`)
    refuse()
    using prompt = createPrompt(invocation)
    for (const name of missing) {
      const { question, isSecret, problem } = fields[name]
      texts[name] = await prompt.ask(question, { isHidden: isSecret === true, problem })
    }
  }
  const { baseUrl, tokenUrl, expiresAt, ...secrets } = texts
  const preset = isOAuth2 && { preset: 'oauth2' }
  const service = (isOAuth2 || tokenUrl !== undefined) && {
    service: { ...preset, ...(tokenUrl && { tokenUrl }) },
  }
  return { settings: { baseUrl, ...service, credentials: expiresAt ? { expiresAt } : {} }, secrets }
}

/** The content of a file without its newline. Throws UsageError (64). */
async function textOf(by: string, path: string, invocation: Invocation): Promise<string> {
  const bytes = await readNamed({ by, path, maxBytes: MAX_FILE_BYTES }, invocation)
  if (bytes === undefined) throw new UsageError(`The file of ${by} holds more than 1 MiB: name another.`)
  return withoutNewline(bytes.toString())
}

function prefixed(subject: string, problem: string | undefined): string | undefined {
  return problem && `${subject} ${problem}`
}
