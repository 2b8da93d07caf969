// The answers that `setup` needs: from its options, from a document with all of them, or asked for at the terminal.
import { baseUrlProblem, baseUrlWarning, tokenUrlProblem } from '../config/base-url.ts'
import { secretRefusal } from '../config/inputs.ts'
import { ConfigError, type ConfigIssue } from '../config/issues.ts'
import { findJsonFault } from '../config/json-fault.ts'
import { validateDocument } from '../config/validate.ts'
import { certificatesIn } from '../lib/crypto.ts'
import { UsageError } from '../lib/error.ts'
import { readLimited } from '../lib/input.ts'
import type { Invocation } from './command.ts'
import { createPrompt, isTerminal } from './prompt.ts'
import { existing, present, readAnswer, type Answers, type SetupFiles } from './setup-files.ts'

const MAX_DOCUMENT_BYTES = 1_048_576

type Given = Partial<Record<'baseUrl' | 'preset' | 'tokenUrl' | 'apiKey' | 'apiSecret', string | undefined>>
interface Field {
  readonly option: string
  /** The question at a terminal, as the answers so far have it; undefined: it is not needed. */
  readonly question: (given: Given) => string | undefined
  /** The fault of an answer, as a sentence without its full stop. Never quotes a secret. */
  readonly problem: (text: string) => string | undefined
}

/** In the order in which they are asked for. */
const fields: Readonly<Record<keyof Given, Field>> = {
  baseUrl: {
    option: 'base-url',
    question: () => 'Address of the service (https://…)',
    problem: problemWith('The address', (text) => baseUrlProblem(text) ?? baseUrlWarning(text)),
  },
  preset: {
    option: 'preset',
    question: ({ tokenUrl }) =>
      tokenUrl === undefined
        ? 'OAuth2 client credentials or API key and secret? (oauth2 or key) [key]'
        : undefined,
    problem: (text) => (['', 'key', 'oauth2'].includes(text) ? undefined : 'Write "oauth2" or "key"'),
  },
  tokenUrl: {
    option: 'token-url',
    question: ({ preset }) =>
      preset === 'oauth2'
        ? 'Where it gives tokens (a path after the address such as /oauth/token, or https://…)'
        : undefined,
    problem: problemWith('The address', tokenUrlProblem),
  },
  apiKey: {
    option: 'api-key-file',
    question: ({ preset }) => `${preset === 'oauth2' ? 'Client ID' : 'API key'} (not shown)`,
    problem: problemWith('The secret', secretRefusal),
  },
  apiSecret: {
    option: 'api-secret-file',
    question: ({ preset }) => `${preset === 'oauth2' ? 'Client secret' : 'API secret'} (not shown)`,
    problem: problemWith('The secret', secretRefusal),
  },
}

/** Throws UsageError (64) for what is missing or cannot be right, and ConfigError (78) for a faulty document. */
export async function readAnswers(invocation: Invocation, files: SetupFiles): Promise<Answers> {
  const { options, stdin } = invocation
  const document = options['from'] as string | undefined
  const ca = options['ca-file'] === undefined ? undefined : await readAnswer(options, 'ca-file')
  if (ca !== undefined && certificatesIn(ca).length === 0)
    throw new UsageError('--ca-file: The file holds no certificate in PEM.')
  if (document === undefined) return { ...(await singleAnswers(invocation, files)), ca }
  const both = Object.values(fields).find(({ option }) => options[option] !== undefined)
  if (both !== undefined)
    throw new UsageError(`--from and --${both.option} are both given: leave one of them out.`)
  if (document !== '-') return { ...answersOf(await readAnswer(options, 'from'), document), ca }
  const bytes = await readLimited(stdin as AsyncIterable<Buffer>, { maxBytes: MAX_DOCUMENT_BYTES })
  if (bytes === undefined) throw new UsageError('--from: there is more than 1 MiB on standard input.')
  return { ...answersOf(bytes.toString(), 'standard input'), ca }
}

/** A configuration whose key and secret are in it. No fault quotes a value. */
function answersOf(text: string, name: string): Answers {
  const syntax = findJsonFault(text)
  if (syntax !== undefined) throw new ConfigError([{ at: '', sentence: syntax }], name)
  const document: unknown = JSON.parse(text)
  const { faults: misshapen } = validateDocument(document)
  if (misshapen.length > 0) throw new ConfigError(misshapen, name)
  const { baseUrl, credentials, ...settings } = document as { baseUrl: string; credentials: Given }
  const { apiKey = '', apiSecret = '' } = credentials
  const faults = Object.entries({ apiKey, apiSecret, baseUrl }).flatMap(([field, value]): ConfigIssue[] => {
    const at = field === 'baseUrl' ? field : `credentials.${field}`
    const sentence =
      typeof value === 'string'
        ? fields[field as keyof Given].problem(value)
        : 'must be the text itself: setup writes it to a file of its own'
    return sentence === undefined ? [] : [{ at, sentence }]
  })
  if (faults.length > 0) throw new ConfigError(faults, name)
  return { baseUrl, apiKey, apiSecret, settings }
}

/** From the options, and what is missing from the terminal. */
async function singleAnswers(
  { options, stdin, stderr, signal }: Invocation,
  files: SetupFiles,
): Promise<Answers> {
  const given: Given = {}
  const all = Object.entries(fields) as [keyof Given, Field][]
  for (const [name, { option, problem }] of all) {
    if (options[option] === undefined) continue
    given[name] = option.endsWith('-file') ? await readAnswer(options, option) : String(options[option])
    const fault = problem(given[name])
    if (fault !== undefined) throw new UsageError(`--${option}: ${fault}.`)
  }
  if (!isWhole(given)) {
    if (!isTerminal(stdin))
      throw new UsageError(
        'There is no terminal to ask at: give --base-url, --api-key-file and --api-secret-file (and --token-url with --preset), or --from.',
      )
    const there = present([files.config, files.apiKey, files.apiSecret, ...files.others])
    if (there.length > 0 && options['force'] !== true) throw existing(there, 'add --force to replace it')
    using prompt = createPrompt({ input: stdin, output: stderr, signal })
    for (const [name, { option, question, problem }] of all) {
      const words = given[name] === undefined ? question(given) : undefined
      if (words !== undefined)
        given[name] = await prompt.ask(words, { isHidden: option.endsWith('-file'), problem })
    }
  }
  const { preset, tokenUrl, ...answers } = given as Whole
  // Without a description it is the standard service.
  const service = { ...(preset === 'oauth2' && { preset }), tokenUrl }
  return { ...answers, settings: tokenUrl === undefined ? {} : { service } }
}

type Whole = Given & Pick<Answers, 'baseUrl' | 'apiKey' | 'apiSecret'>

function isWhole({ baseUrl, apiKey, apiSecret, preset, tokenUrl }: Given): boolean {
  const isDescribed = preset === undefined || tokenUrl !== undefined
  return baseUrl !== undefined && apiKey !== undefined && apiSecret !== undefined && isDescribed
}

function problemWith(subject: string, problem: Field['problem']): Field['problem'] {
  return (text) => {
    const found = problem(text)
    return found === undefined ? undefined : `${subject} ${found}`
  }
}
