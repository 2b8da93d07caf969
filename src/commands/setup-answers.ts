// The answers that `setup` needs: from its options, from a document with all of them, or asked for at the terminal.
import { baseUrlProblem, baseUrlWarning, tokenUrlProblem } from '../config/base-url.ts'
import { ConfigError, type ConfigIssue } from '../config/issues.ts'
import { findJsonFault } from '../config/json-fault.ts'
import { secretRefusal } from '../config/inputs.ts'
import { validateDocument } from '../config/validate.ts'
import { UsageError } from '../lib/error.ts'
import { certificatesIn } from '../lib/crypto.ts'
import { readLimited } from '../lib/input.ts'
import type { Invocation } from './command.ts'
import { createPrompt, isTerminal, type Prompt } from './prompt.ts'
import { existing, present, readAnswer, type Answers, type SetupFiles } from './setup-files.ts'

const MAX_DOCUMENT_BYTES = 1_048_576
const SINGLE_ANSWERS = ['base-url', 'api-key-file', 'api-secret-file', 'preset', 'token-url']
const KIND = 'OAuth2 client credentials or API key and secret? (oauth2 or key) [key]'
const ENDPOINT = 'Where it gives tokens (a path after the address such as /oauth/token, or https://…)'

/** Throws UsageError (64) for what is missing or cannot be right, and ConfigError (78) for a faulty document. */
export async function readAnswers(invocation: Invocation, files: SetupFiles): Promise<Answers> {
  const { options } = invocation
  const document = options['from'] as string | undefined
  const ca = options['ca-file'] === undefined ? undefined : await readCa(String(options['ca-file']))
  if (document === undefined) return { ...(await singleAnswers(invocation, files)), ca }
  const both = SINGLE_ANSWERS.find((name) => options[name] !== undefined)
  if (both !== undefined) throw new UsageError(`--from and --${both} are both given: leave one of them out.`)
  const isInput = document === '-'
  const text = isInput ? await readInput(invocation) : await readAnswer(document, 'from')
  return { ...answersOf(text, isInput ? 'standard input' : document), ca }
}

async function readCa(path: string): Promise<string> {
  const text = await readAnswer(path, 'ca-file')
  demand('ca-file', certificatesIn(text).length > 0 ? undefined : 'The file holds no certificate in PEM')
  return text
}

async function readInput({ stdin }: Invocation): Promise<string> {
  const bytes = await readLimited(stdin as AsyncIterable<Buffer>, { maxBytes: MAX_DOCUMENT_BYTES })
  if (bytes !== undefined) return bytes.toString()
  throw new UsageError('--from: there is more than 1 MiB on standard input.')
}

/** A configuration whose key and secret are in it. No fault quotes a value. */
function answersOf(text: string, name: string): Answers {
  const syntax = findJsonFault(text)
  if (syntax !== undefined) throw new ConfigError([{ at: '', sentence: syntax }], name)
  const document: unknown = JSON.parse(text)
  const faults: ConfigIssue[] = [...validateDocument(document).faults]
  if (faults.length > 0) throw new ConfigError(faults, name)
  const { baseUrl, credentials, ...settings } = document as {
    baseUrl: string
    credentials: { apiKey: unknown; apiSecret: unknown }
  }
  const refuse = (at: string, problem: string | undefined): void => {
    if (problem !== undefined) faults.push({ at, sentence: problem })
  }
  const literal = (part: 'apiKey' | 'apiSecret'): string => {
    const value = credentials[part]
    const isText = typeof value === 'string'
    const at = `credentials.${part}`
    refuse(
      at,
      isText ? secretProblem(value) : 'must be the text itself: setup writes it to a file of its own',
    )
    return isText ? value : ''
  }
  refuse('baseUrl', urlProblem(baseUrl))
  const answers = { baseUrl, apiKey: literal('apiKey'), apiSecret: literal('apiSecret'), settings }
  if (faults.length > 0) throw new ConfigError(faults, name)
  return answers
}

/** From the options, and what is missing from the terminal. */
async function singleAnswers(
  { options, stdin, stderr, signal }: Invocation,
  files: SetupFiles,
): Promise<Answers> {
  const given = await givenAnswers(options)
  if (isComplete(given)) return withService(given)
  if (!isTerminal(stdin))
    throw new UsageError(
      'There is no terminal to ask at: give --base-url, --api-key-file and --api-secret-file (and --token-url with --preset), or --from.',
    )
  const { config, apiKey, apiSecret, others } = files
  const there = options['force'] === true ? [] : await present([config, apiKey, apiSecret, ...others])
  if (there.length > 0) throw existing(there, 'add --force to replace it')
  const prompt = createPrompt({ input: stdin, output: stderr, signal })
  try {
    return withService(await askMissing(given, prompt))
  } finally {
    prompt.close()
  }
}

/** The fault of an answer, as a sentence without its full stop. */
type Problem = (text: string) => string | undefined
type Given = Partial<Record<'baseUrl' | 'apiKey' | 'apiSecret' | 'preset' | 'tokenUrl', string | undefined>>
type Complete = Given & Pick<Answers, 'baseUrl' | 'apiKey' | 'apiSecret'>

function isComplete(given: Given): given is Complete {
  const { baseUrl, apiKey, apiSecret, preset, tokenUrl } = given
  const isWhole = baseUrl !== undefined && apiKey !== undefined && apiSecret !== undefined
  return isWhole && (preset === undefined || tokenUrl !== undefined)
}

async function givenAnswers(options: Invocation['options']): Promise<Given> {
  const text = async (option: string, problem: Problem): Promise<string | undefined> => {
    const value = options[option] as string | undefined
    if (value === undefined) return undefined
    const answer = option.endsWith('-file') ? await readAnswer(value, option) : value
    demand(option, problem(answer))
    return answer
  }
  return {
    baseUrl: await text('base-url', urlProblem),
    preset: options['preset'] as string | undefined,
    tokenUrl: await text('token-url', endpointProblem),
    apiKey: await text('api-key-file', secretProblem),
    apiSecret: await text('api-secret-file', secretProblem),
  }
}

async function askMissing(given: Given, prompt: Prompt): Promise<Complete> {
  const baseUrl =
    given.baseUrl ?? (await prompt.ask('Address of the service (https://…)', { problem: urlProblem }))
  const isDescribed = given.preset !== undefined || given.tokenUrl !== undefined
  const kind = isDescribed ? given.preset : await prompt.ask(KIND, { problem: kindProblem })
  const isOauth2 = kind === 'oauth2'
  const tokenUrl =
    given.tokenUrl ?? (isOauth2 ? await prompt.ask(ENDPOINT, { problem: endpointProblem }) : undefined)
  const hidden = { isHidden: true, problem: secretProblem }
  const [key, secret] = isOauth2 ? ['Client ID', 'Client secret'] : ['API key', 'API secret']
  const apiKey = given.apiKey ?? (await prompt.ask(`${key} (not shown)`, hidden))
  const apiSecret = given.apiSecret ?? (await prompt.ask(`${secret} (not shown)`, hidden))
  return { baseUrl, apiKey, apiSecret, tokenUrl, ...(isOauth2 && { preset: kind }) }
}

/** Without a description it is the standard service. */
function withService({ preset, tokenUrl, ...answers }: Complete): Answers {
  const service = { ...(preset !== undefined && { preset }), tokenUrl }
  return { ...answers, settings: tokenUrl === undefined ? {} : { service } }
}

function kindProblem(text: string): string | undefined {
  return ['', 'key', 'oauth2'].includes(text) ? undefined : 'Write "oauth2" or "key"'
}

function endpointProblem(text: string): string | undefined {
  const problem = tokenUrlProblem(text)
  return problem === undefined ? undefined : `The address ${problem}`
}

function demand(option: string, problem: string | undefined): void {
  if (problem !== undefined) throw new UsageError(`--${option}: ${problem}.`)
}

function urlProblem(text: string): string | undefined {
  const problem = baseUrlProblem(text) ?? baseUrlWarning(text)
  return problem === undefined ? undefined : `The address ${problem}`
}

/** The fault of a key or secret, found by the rules of the configuration. Never quotes it. */
function secretProblem(text: string): string | undefined {
  const problem = secretRefusal(text)
  return problem === undefined ? undefined : `The secret ${problem}`
}
