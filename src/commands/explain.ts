// `kyc-tokend explain`: what the daemon would make of an answer of the service, by the daemon's own code.
import { readFile } from 'node:fs/promises'
import type { Readable } from 'node:stream'
import { defaults } from '../config/defaults.ts'
import { parseDuration, tellDuration } from '../lib/duration.ts'
import { errorMessage, exitStatus, UserError } from '../lib/error.ts'
import { classify, failureTable, MAX_BODY_BYTES, rowOf, type Answer } from '../source/response.ts'
import { MAX_DELAY_WITHOUT_TOKEN_MS, retryWait } from '../token/backoff.ts'
import type { FetchOutcome, TransientFailure } from '../token/outcome.ts'
import { remedyFor } from '../token/remedy.ts'
import { heldToken, initialState, nextState, type Policy } from '../token/state.ts'
import type { Token } from '../token/token.ts'
import type { Invocation, RunCommand } from './command.ts'

const policy: Policy = {
  initialDelayMs: durationOf(defaults.retry.initialDelay),
  maxDelayMs: durationOf(defaults.retry.maxDelay),
  maxAgeMs: durationOf(defaults.refresh.maxAge),
}

export const run: RunCommand = async ({ options, stdin, stdout }) => {
  const status = statusOf(options.status)
  const headers = headersOf(options.header)
  const answer: Answer = { status, headers, ...(await bodyOf(options.body, stdin)) }
  const now = { bootMs: 0, wallMs: Date.now() }
  const said = classify(answer, { wallMs: now.wallMs, secrets: [] })
  // A token may turn out to have no life left.
  const { state, outcome } = nextState(initialState(''), said, { now, policy, random: () => 0 })
  const lines = [`Row: ${tellRow(outcome)}`, ...tellOutcome(outcome, heldToken(state))]
  stdout.write(`${lines.join('\n')}\n`)
  return exitStatus.ok
}

function tellRow(outcome: FetchOutcome): string {
  const row = rowOf(outcome)
  return `${failureTable.indexOf(row) + 1} of ${failureTable.length} (${row.answer}): ${row.follows}`
}

function tellOutcome(outcome: FetchOutcome, token: Token | null): string[] {
  if (outcome.kind === 'ok') return token === null ? [] : tellToken(token)
  const { reason, detail } = outcome
  const then = outcome.kind === 'permanent' ? tellRefusal() : tellRetry(outcome)
  return [`Reason: ${reason}`, `Detail: ${detail}`, `Then: ${then}`, `Remedy: ${remedyFor(reason)}`]
}

function tellToken({ lifeMs, refreshAtMs, expirySource }: Token): string[] {
  const life = tellDuration(lifeMs)
  const source =
    expirySource === 'jwt'
      ? `It lives ${life} by its own word`
      : `It does not say how long it lives: ${life} is assumed (refresh.maxAge)`
  return [
    'Reason: none, it is a token',
    `Then: served to everybody. ${source}; refreshed after about ${tellDuration(refreshAtMs)}`,
  ]
}

function tellRefusal(): string {
  return (
    'one alert, and no request until the credentials or baseUrl change (reload), an operator says ' +
    '`kyc-tokend refresh`, or the daemon is started after an orderly stop; a token that is still good is served until it expires'
  )
}

/** With the default settings, and the bounds of what chance decides. */
function tellRetry(failure: TransientFailure): string {
  const waitMs = (attempts: number, drawn: number): number =>
    retryWait(failure, { attempts, policy, holdsToken: true, random: () => drawn }).waitMs
  const range = `${tellDuration(waitMs(1, 0))} to ${tellDuration(waitMs(1, 1))}`
  if (failure.reason === 'rejected') return `an alert, and asked again every ${range}`
  const bound =
    failure.retryAfterMs === undefined
      ? ''
      : `, not before the ${tellDuration(failure.retryAfterMs)} of Retry-After`
  const cap = `${tellDuration(policy.maxDelayMs)}, or ${tellDuration(MAX_DELAY_WITHOUT_TOKEN_MS)} while there is no token`
  return `asked again after ${range}${bound}; the wait doubles with each failure, up to ${cap} (with the default settings)`
}

function statusOf(given: Invocation['options'][string]): number {
  if (typeof given === 'string' && /^[1-9]\d\d$/.test(given)) return Number(given)
  throw new UserError('--status takes the HTTP status of the answer, such as --status 500', exitStatus.usage)
}

/** By lower-case name, a line each. */
function headersOf(given: Invocation['options'][string]): Record<string, string> {
  const lines = String(given ?? '').split('\n')
  return Object.fromEntries(lines.filter((line) => line.trim() !== '').map(headerOf))
}

function headerOf(line: string): [string, string] {
  const match = /^([\w!#$%&'*+.^`|~-]+):\s*(.*?)\s*$/.exec(line)
  if (match === null) {
    throw new UserError(
      "--header takes a name and a value, such as --header 'Retry-After: 120'",
      exitStatus.usage,
    )
  }
  const [, name = '', value = ''] = match
  return [name.toLowerCase(), value]
}

/** The body as the daemon would read it: no more than its limit. */
async function bodyOf(
  given: Invocation['options'][string],
  stdin: Readable,
): Promise<Pick<Answer, 'body' | 'isCut'>> {
  if (given === undefined) return { body: new Uint8Array() }
  const body = given === '-' ? await readAll(stdin) : await readFile(String(given)).catch(unreadable)
  return { body: body.subarray(0, MAX_BODY_BYTES), isCut: body.length > MAX_BODY_BYTES }
}

async function readAll(stream: Readable): Promise<Buffer> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of stream) {
    chunks.push(Buffer.from(chunk as string | Buffer))
    size += chunks.at(-1)?.length ?? 0
    if (size > MAX_BODY_BYTES) break
  }
  return Buffer.concat(chunks)
}

function unreadable(cause: unknown): never {
  throw new UserError(
    `The file of --body cannot be read (${errorMessage(cause)}): name one that can, or - for stdin`,
    exitStatus.usage,
    { cause },
  )
}

function durationOf(text: string): number {
  const ms = parseDuration(text)
  if (ms === undefined) throw new Error(`A default is no duration: ${text}`)
  return ms
}
