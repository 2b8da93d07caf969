// Shared by the commands: they find the daemon or the configuration that is meant, send a request, and turn
// errors into a sentence and an exit status.
import { createSource } from '../client/create-source.ts'
import { namedDaemon, socketFinder } from '../client/find-socket.ts'
import { TokenClientError, type ClientToken, type TokenClientErrorCode } from '../client/index.ts'
import { createLink } from '../client/link.ts'
import {
  ACCOUNT_VARIABLE,
  installationOf,
  accountEnvironment,
  accountOf,
  checkedAccount,
} from '../host/account.ts'
import { createRemedies, type Remedies } from '../host/remedy.ts'
import { placeOfDaemon, unitWords } from '../host/system.ts'
import { formatDuration, parseDuration } from '../lib/duration.ts'
import { exitStatus, type ExitStatus, UsageError, UserError } from '../lib/error.ts'
import {
  MAX_MIN_VALID_SECONDS,
  MAX_WAIT_SECONDS,
  type AlertTestResult,
  type RefreshResult,
  type ReloadResult,
  type StatusResult,
} from '../protocol.ts'
import type { Invocation } from './command.ts'

/** Exit status of each error, of sysexits.h. */
const statuses: Readonly<Record<TokenClientErrorCode, ExitStatus>> = {
  'no-token-yet': exitStatus.tryAgain,
  expired: exitStatus.tryAgain,
  busy: exitStatus.tryAgain,
  'account-inactive': exitStatus.noPermission,
  'account-not-found': exitStatus.noPermission,
  denied: exitStatus.noPermission,
  'bad-request': exitStatus.usage,
  'daemon-unreachable': exitStatus.unavailable,
  timeout: exitStatus.unavailable,
  closed: exitStatus.internal,
}

/** One attempt at the service, and one that is under way before it, in ms. */
const REFRESH_MS = 120_000
/** The daemon answers within 60 s, and reads its files before. */
const RELOAD_MS = 80_000

/** An invocation whose options or environment name the daemon. */
type WithOptions = Pick<Invocation, 'options' | 'env'>

/** The names of a daemon among the options. */
function namesIn({ options }: WithOptions): Parameters<typeof namedDaemon>[1] {
  const { socket, account } = options as { socket?: string; account?: string }
  return { socketPath: socket, account }
}

/** The function that finds the socket of the daemon that the options name, else the environment. */
function finderFor(invocation: WithOptions): () => string {
  const { env } = invocation
  return socketFinder(() => ({ env, uid: process.geteuid!() }), namesIn(invocation))
}

/** A client with the operators' requests, for the named daemon. Throws UserError (64) for two names, or a wrong one. */
export function openClient(invocation: WithOptions) {
  try {
    const name = 'kyc-tokend'
    const link = createLink(finderFor(invocation), name)
    const source = createSource({ name }, link)
    return {
      ...source,
      link,
      refresh: () => link.ask<RefreshResult>('refresh.request', {}, REFRESH_MS),
      reload: () => link.ask<ReloadResult>('reload.request', {}, RELOAD_MS),
      alertTest: () => link.ask<AlertTestResult>('alert.test', {}),
      [Symbol.dispose]: source.close,
    }
  } catch (error) {
    throw asUserError(error)
  }
}

/** Sends one request. Throws UserError for a fault of the daemon and for its absence. */
export async function ask<T>(
  invocation: WithOptions,
  question: (client: ReturnType<typeof openClient>) => Promise<T>,
): Promise<T> {
  using client = openClient(invocation)
  try {
    return await question(client)
  } catch (error) {
    throw await withReason(error, invocation)
  }
}

/** The token, with the life and the wait that the options `--min-valid` and `--wait` ask for. */
export async function askToken(invocation: WithOptions): Promise<ClientToken> {
  const minValidSeconds = secondsOf(invocation, 'min-valid', MAX_MIN_VALID_SECONDS)
  // Only a wait that was asked for is also for a daemon that has not been started yet.
  const waitSeconds = secondsOf(invocation, 'wait', MAX_WAIT_SECONDS)
  return ask(invocation, (client) => client.get({ minValidSeconds, waitSeconds }))
}

/** The remedies with commands about the daemon that has answered the invocation. */
export async function remediesFor(
  daemon: StatusResult['daemon'],
  invocation: WithOptions,
): Promise<Remedies> {
  // It may have stopped since.
  const socket = await Promise.resolve()
    .then(finderFor(invocation))
    .catch(() => undefined)
  return createRemedies(await placeOfDaemon(daemon, socket))
}

/** As asUserError; an error without a daemon has the state of its unit in systemd's own words. */
export async function withReason(error: unknown, invocation: WithOptions): Promise<unknown> {
  const plain = asUserError(error)
  if (!(error instanceof TokenClientError) || statusOf(error) !== exitStatus.unavailable) return plain
  const { socketPath, account: name } = namedDaemon(invocation.env, namesIn(invocation))
  const account = socketPath ? accountOf(socketPath) : name || undefined
  if (socketPath && socketPath !== installationOf(account).ipcSocket) return plain
  const { unit } = installationOf(account)
  const words = await unitWords(`${unit}.service`)
  if (words === '') return plain
  const { check } = createRemedies({ account, isUnit: true }).commands
  const sentence = `${error.message} ${unit}.service: ${words}. More: \`${check}\`.`
  return new UserError(sentence, exitStatus.unavailable, { cause: error })
}

/** A TokenClientError as a UserError with its exit status; any other error as it is. */
function asUserError(error: unknown): unknown {
  return error instanceof TokenClientError ? new UserError(error.message, statusOf(error)) : error
}

/** A code of another version says that there is no token, and not why. */
function statusOf({ code }: TokenClientError): ExitStatus {
  return Object.hasOwn(statuses, code) ? statuses[code] : exitStatus.tryAgain
}

/** The duration of an option in seconds; undefined: it is not given. Throws UsageError (64). */
function secondsOf({ options }: WithOptions, option: string, max: number): number | undefined {
  const text = options[option]
  if (typeof text !== 'string') return undefined
  const ms = parseDuration(text)
  if (ms !== undefined && ms <= max * 1_000) return ms / 1_000
  throw new UsageError(
    `--${option} takes a duration such as 30s or 5m, up to ${formatDuration(max * 1_000)}.`,
  )
}

/**
 * The configuration that `run` and `check` are meant for, by --config, by --account, or by the environment;
 * without a path that which the search finds. `env` has the directories of the account. Throws UsageError
 * (64) if a configuration and an account are named in the same way.
 */
export function configurationOf({ options, env }: WithOptions): {
  readonly configPath: string | undefined
  readonly env: NodeJS.ProcessEnv
  readonly account: string | undefined
} {
  const { config, account } = options as { config?: string; account?: string }
  if (config !== undefined && account !== undefined) throw bothGiven('--config and --account')
  const named = account ?? (env[ACCOUNT_VARIABLE] || undefined)
  if (config !== undefined || named === undefined) return { configPath: config, env, account: undefined }
  if (account === undefined && env['KYC_TOKEND_CONFIG'])
    throw bothGiven(`$KYC_TOKEND_CONFIG and $${ACCOUNT_VARIABLE}`)
  const name = checkedAccount(named)
  const identity = { env, uid: process.geteuid!() }
  return { configPath: installationOf(name).config, env: accountEnvironment(name, identity), account: name }
}

/** Of options or variables that exclude one another. */
export function bothGiven(names: string): UsageError {
  return new UsageError(`${names} are both given: leave one of them out.`)
}
