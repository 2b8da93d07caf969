// The files that `setup` writes: configuration, key and secret, with the owner and mode that the daemon needs.
import { chown, mkdir, readFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'

import { idOf } from '../lib/posix-ids.ts'
import { normaliseBaseUrl } from '../config/base-url.ts'
import { withoutNewline } from '../config/secrets.ts'
import { accountConfigPath } from '../lib/account.ts'
import { FileError } from '../lib/file-error.ts'
import { lstatIfAny, replaceFile, type FileAttributes } from '../lib/atomic-file.ts'
import { errorCode, errorMessage, exitStatus, UsageError, UserError } from '../lib/error.ts'
import { SYSTEM_CONFIG_DIRECTORY } from '../lib/paths.ts'
import { SERVICE_USER } from './service-user.ts'
import { configDirectory } from './systemctl.ts'

export interface Answers {
  readonly baseUrl: string
  readonly apiKey: string
  readonly apiSecret: string
  /** Further settings of the configuration, by their key in it. */
  readonly settings: Readonly<Record<string, unknown>>
}

export interface SetupFiles {
  readonly config: string
  readonly apiKey: string
  readonly apiSecret: string
  /** Configurations that would be read instead of this one, or beside it. */
  readonly others: readonly string[]
  readonly attributes: FileAttributes
  /** Settings of a new configuration. */
  readonly settings: object
}

/** Files of root's service, or of a person in the working directory. Throws UserError. */
export async function setupFiles(account: string | undefined, workingDirectory: string): Promise<SetupFiles> {
  const isRoot = process.geteuid!() === 0
  if (account !== undefined && !isRoot)
    throw new UserError('Only root sets up an account: run it with sudo.', exitStatus.noPermission)
  const gid = isRoot ? await idOf('group', SERVICE_USER) : undefined
  const directory = isRoot ? configDirectory(account) : workingDirectory
  const prefix = account === undefined ? '' : `${account}.`
  const alternatives = account === undefined ? ['yaml', 'yml'] : []
  return {
    config: account === undefined ? join(directory, 'kyc-tokend.config.json') : accountConfigPath(account),
    apiKey: join(directory, `${prefix}api-key`),
    apiSecret: join(directory, `${prefix}api-secret`),
    others: alternatives.map((ending) => join(directory, `kyc-tokend.config.${ending}`)),
    attributes: gid === undefined ? { mode: 0o600 } : { mode: 0o640, uid: 0, gid },
    // The clients' group reads the token file of the service.
    settings: gid === undefined ? {} : { tokenFiles: [{ path: 'token', mode: '0640' }] },
  }
}

/** Files that are there already. */
export async function presentFiles({ config, apiKey, apiSecret, others }: SetupFiles): Promise<string[]> {
  const present: string[] = []
  for (const path of [config, apiKey, apiSecret, ...others]) if (await isThere(path)) present.push(path)
  return present
}

/**
 * Writes those that do not say the same already, and gives their paths. Other settings of a configuration stay. Throws
 * UserError (78), and writes nothing, where one is there that says something else, unless `force` is set.
 */
export async function writeSetup(
  files: SetupFiles,
  answers: Answers,
  { force }: { force: boolean },
): Promise<string[]> {
  const { config, apiKey, apiSecret, others, attributes } = files
  for (const path of others) if (await isThere(path)) throw existing([path], 'remove it, or edit it instead')
  const known = await readSettings(config)
  const credentials = { apiKey: { file: basename(apiKey) }, apiSecret: { file: basename(apiSecret) } }
  const isSame = known !== undefined && saysTheSame(known, { ...answers, credentials })
  const settings = {
    ...(known ?? files.settings),
    baseUrl: answers.baseUrl,
    credentials,
    ...answers.settings,
  }
  const contents: [string, string, boolean][] = [
    [apiKey, `${answers.apiKey}\n`, await holds(apiKey, answers.apiKey)],
    [apiSecret, `${answers.apiSecret}\n`, await holds(apiSecret, answers.apiSecret)],
    [config, `${JSON.stringify(settings, null, 2)}\n`, isSame],
  ]
  const changed = contents.filter(([, , isDone]) => !isDone)
  const overwritten: string[] = []
  for (const [path] of changed) if (await isThere(path)) overwritten.push(path)
  if (overwritten.length > 0 && !force)
    throw existing(overwritten, 'add --force to replace it', ', with other content')
  if (typeof attributes.gid === 'number') await makeDirectories(config, attributes.gid)
  for (const [path, content] of changed)
    await replaceFile(path, content, attributes).catch((error: unknown) => {
      if (!(error instanceof FileError)) throw error
      throw new UserError(`${error.message}.`, exitStatus.configuration, { cause: error })
    })
  return changed.map(([path]) => path)
}

export function existing(paths: readonly string[], remedy: string, as = ''): UserError {
  const are = paths.length === 1 ? 'is' : 'are'
  const last = paths.length === 1 ? '' : ' (each of them)'
  return new UserError(
    `${paths.join(', ')} ${are} there already${as}: ${remedy}${last}.`,
    exitStatus.configuration,
  )
}

/** The content of a file with one key or secret, without its newline. Throws UsageError (64). */
export async function readAnswer(path: string, option: string): Promise<string> {
  try {
    return withoutNewline(await readFile(path, 'utf8'))
  } catch (error) {
    const message = `The file of --${option} cannot be read (${errorMessage(error)}): name one that can.`
    throw new UsageError(message, { cause: error })
  }
}

async function holds(path: string, text: string): Promise<boolean> {
  const content = await readIfAny(path)
  return content !== undefined && withoutNewline(content) === text
}

/** The settings of a configuration that is there; undefined where none is, or it is none. */
async function readSettings(path: string): Promise<Record<string, unknown> | undefined> {
  try {
    const settings: unknown = JSON.parse((await readIfAny(path)) ?? 'null')
    const isObject = typeof settings === 'object' && settings !== null && !Array.isArray(settings)
    return isObject ? (settings as Record<string, unknown>) : undefined
  } catch {
    // Not JSON: it says something else.
    return undefined
  }
}

function saysTheSame(
  { baseUrl, credentials, ...others }: Record<string, unknown>,
  answers: { baseUrl: string; credentials: object; settings: Answers['settings'] },
): boolean {
  const isSameUrl =
    typeof baseUrl === 'string' &&
    URL.canParse(baseUrl) &&
    normaliseBaseUrl(baseUrl) === normaliseBaseUrl(answers.baseUrl)
  if (!isSameUrl || !isDeepStrictEqual(credentials, answers.credentials)) return false
  return Object.entries(answers.settings).every(([key, value]) => isDeepStrictEqual(others[key], value))
}

/** The package makes them; without it they are made here. */
async function makeDirectories(config: string, gid: number): Promise<void> {
  await mkdir(SYSTEM_CONFIG_DIRECTORY, { recursive: true, mode: 0o755 })
  if (!config.includes('/accounts/')) return
  const accounts = join(SYSTEM_CONFIG_DIRECTORY, 'accounts')
  const isMade = await mkdir(accounts, { recursive: true, mode: 0o750 })
  if (isMade !== undefined) await chown(accounts, 0, gid)
}

async function readIfAny(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8')
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined
    throw new UserError(
      `${path} is there and cannot be read (${errorMessage(error)}): remove it, or run this with sudo.`,
      exitStatus.configuration,
      { cause: error },
    )
  }
}

async function isThere(path: string): Promise<boolean> {
  return (await lstatIfAny(path)) !== null
}
