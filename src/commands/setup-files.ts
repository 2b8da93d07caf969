// The files that `setup` writes: configuration, key and secret, with the owner and mode that the daemon needs. What was
// there before can be put back as it was.
import { chown, link, mkdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'

import { normaliseBaseUrl } from '../config/base-url.ts'
import { permissionFaults } from '../config/read-file.ts'
import { withoutNewline } from '../config/secrets.ts'
import { accountConfigPath } from '../lib/account.ts'
import { lstatIfAny, replaceFile, type FileAttributes } from '../lib/atomic-file.ts'
import { errorCode, errorMessage, exitStatus, UsageError, UserError } from '../lib/error.ts'
import { FileError } from '../lib/file-error.ts'
import { SYSTEM_CONFIG_DIRECTORY } from '../lib/paths.ts'
import { idOf, localUser } from '../lib/posix-ids.ts'
import { SERVICE_USER } from './service-user.ts'
import { configDirectory } from './systemd.ts'

export interface Answers {
  readonly baseUrl: string
  readonly apiKey: string
  readonly apiSecret: string
  /** PEM of a private authority. */
  readonly ca?: string | undefined
  /** Further settings of the configuration, by their key in it. */
  readonly settings: Readonly<Record<string, unknown>>
}

export interface SetupFiles {
  readonly config: string
  readonly apiKey: string
  readonly apiSecret: string
  readonly ca: string
  /** Configurations that would be read instead of this one, or beside it. */
  readonly others: readonly string[]
  readonly attributes: FileAttributes
  /** Settings of a new configuration. */
  readonly settings: object
}

/** A file that does not say yet what it shall. */
interface Change {
  readonly path: string
  readonly content: string
}

/** Files of root's service, or of a person in the working directory. Throws UserError. */
export async function setupFiles(account: string | undefined, workingDirectory: string): Promise<SetupFiles> {
  const isRoot = process.geteuid!() === 0
  if (account !== undefined && !isRoot)
    throw new UserError('Only root sets up an account: run it with sudo.', exitStatus.noPermission)
  const gid = isRoot ? await idOf('group', SERVICE_USER) : undefined
  const directory = isRoot ? configDirectory(account) : workingDirectory
  const named = (name: string): string => join(directory, account === undefined ? name : `${account}.${name}`)
  const alternatives = account === undefined ? ['yaml', 'yml'] : []
  return {
    config: account === undefined ? join(directory, 'kyc-tokend.config.json') : accountConfigPath(account),
    apiKey: named('api-key'),
    apiSecret: named('api-secret'),
    ca: named('ca.pem'),
    others: alternatives.map((ending) => join(directory, `kyc-tokend.config.${ending}`)),
    attributes: gid === undefined ? { mode: 0o600 } : { mode: 0o640, uid: 0, gid },
    // The clients' group reads the token file of the service.
    settings: gid === undefined ? {} : { tokenFiles: [{ path: 'token', mode: '0640' }] },
  }
}

/** Files that are there already. */
export async function presentFiles({ config, apiKey, apiSecret, others }: SetupFiles): Promise<string[]> {
  const present: string[] = []
  for (const path of [config, apiKey, apiSecret, ...others]) if (await isPresent(path)) present.push(path)
  return present
}

/**
 * The changes that the answers need. Other settings of a configuration stay. Throws UserError (78) where a file is there
 * that says something else, unless `force` is set, and for files and directories that the daemon would refuse.
 */
export async function planSetup(
  files: SetupFiles,
  answers: Answers,
  { force }: { force: boolean },
): Promise<Change[]> {
  const { config, apiKey, apiSecret, ca, others } = files
  for (const path of others)
    if (await isPresent(path)) throw existing([path], 'remove it, or edit it instead')
  await refuseUntrusted(config)
  const known = await readSettings(config)
  const wanted = {
    ...answers.settings,
    credentials: { apiKey: { file: basename(apiKey) }, apiSecret: { file: basename(apiSecret) } },
    ...(answers.ca !== undefined && {
      request: {
        ...(known?.['request'] as object),
        ...(answers.settings['request'] as object),
        caFile: basename(ca),
      },
    }),
  }
  const isSame = known !== undefined && saysTheSame(known, { ...wanted, baseUrl: answers.baseUrl })
  const settings = { ...(known ?? files.settings), baseUrl: answers.baseUrl, ...wanted }
  const changes: Change[] = []
  const texts = [
    [apiKey, answers.apiKey] as const,
    [apiSecret, answers.apiSecret] as const,
    [ca, answers.ca] as const,
  ]
  for (const [path, text] of texts)
    if (text !== undefined && !(await holds(path, text))) changes.push({ path, content: `${text}\n` })
  if (!isSame) changes.push({ path: config, content: `${JSON.stringify(settings, null, 2)}\n` })
  const overwritten: string[] = []
  for (const { path } of changes) if (await isPresent(path)) overwritten.push(path)
  if (overwritten.length > 0 && !force)
    throw existing(overwritten, 'add --force to replace it', ', with other content')
  return changes
}

/** Another user could have written it, or can: the loader refuses it, and nothing is built on it. */
async function refuseUntrusted(config: string): Promise<void> {
  if (!(await isPresent(config))) return
  const uid = localUser(SERVICE_USER)?.uid ?? 0
  const options = { uid: process.geteuid!() === 0 ? uid : process.geteuid!(), holdsSecret: false }
  const [fault] = permissionFaults(config, await stat(config), options)
  if (fault !== undefined)
    throw new UserError(`${config} ${fault}. Nothing was written.`, exitStatus.configuration)
}

/** Writes the changes; `undo` puts back what was there, the same files, and `keep` lets go of it. Throws UserError (78). */
export async function writeSetup(
  changes: readonly Change[],
  { config, attributes }: SetupFiles,
): Promise<{ undo: () => Promise<string[]>; keep: () => Promise<void> }> {
  if (typeof attributes.gid === 'number') await makeDirectories(config, attributes.gid)
  const done: { path: string; former: string | null }[] = []
  const undo = async (): Promise<string[]> => {
    for (const { path, former } of done) {
      await (former === null ? rm(path, { force: true }) : rename(former, path))
      // Two names of one file are left as they are by rename(2).
      if (former !== null) await rm(former, { force: true })
    }
    return done.map(({ path, former }) => `${former === null ? 'Removed' : 'Put back'} ${path}`)
  }
  try {
    for (const { path, content } of changes) {
      const former = (await isPresent(path)) ? `${path}.former` : null
      if (former !== null) {
        await rm(former, { force: true })
        await link(path, former)
      }
      done.push({ path, former })
      await replaceFile(path, content, attributes)
    }
  } catch (error) {
    await undo()
    if (!(error instanceof FileError)) throw error
    throw new UserError(`${error.message}.`, exitStatus.configuration, { cause: error })
  }
  return {
    undo,
    async keep() {
      for (const { former } of done) if (former !== null) await rm(former, { force: true })
    },
  }
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
  { baseUrl, ...others }: Record<string, unknown>,
  { baseUrl: wantedUrl, ...wanted }: Readonly<Record<string, unknown>> & { baseUrl: string },
): boolean {
  const isSameUrl =
    typeof baseUrl === 'string' &&
    URL.canParse(baseUrl) &&
    normaliseBaseUrl(baseUrl) === normaliseBaseUrl(wantedUrl)
  return isSameUrl && Object.entries(wanted).every(([key, value]) => isDeepStrictEqual(others[key], value))
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

async function isPresent(path: string): Promise<boolean> {
  return (await lstatIfAny(path)) !== null
}
