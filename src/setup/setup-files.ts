// The files that `setup` writes: configuration, key and secret, with the owner and mode that the daemon
// needs. They replace what is there once they are confirmed.
import { constants, lstatSync, statSync } from 'node:fs'
import { link, mkdir, open, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { normaliseBaseUrl } from '../config/base-url.ts'
import { permissionFaults, readFile as readConfigFile } from '../config/read-file.ts'
import { withoutNewline } from '../config/secret-text.ts'
import { accountConfigPath } from '../host/account.ts'
import { lstatIfAny, refuseOddTarget } from '../files/atomic-file.ts'
import { replaceFile, type FileAttributes } from '../files/replace-file.ts'
import { FileError } from '../files/file-error.ts'
import { errorCode, errorMessage, exitStatus, UserError } from '../lib/error.ts'
import { fileSentence } from '../host/file-remedy.ts'
import { placeOf } from '../host/place-commands.ts'
import { isRecord, parseJson } from '../lib/input.ts'
import { loadLibc } from '../lib/libc.ts'
import { SERVICE_USER } from '../host/paths.ts'
import { idOf, localUser } from '../host/ids.ts'
import { configDirectory } from '../host/system-config.ts'

/** Files that `setup` writes beside the configuration, by their names in it. */
const NAMES = {
  apiKey: 'api-key',
  apiSecret: 'api-secret',
  ca: 'ca.pem',
  certificate: 'client.pem',
  clientKey: 'client.key',
  assertionKey: 'assertion.pem',
  proxyPassword: 'proxy-password',
} as const
type ContentName = keyof typeof NAMES
/** Their texts, without the last newline. */
export type Contents = Readonly<Partial<Record<ContentName, string | undefined>>>

type Settings = Readonly<Record<string, unknown>>

export interface Answers {
  readonly baseUrl: string
  /** Files that get a text of their own. */
  readonly contents: Contents
  /** When key and secret end; undefined: not said. */
  readonly expiresAt?: string | undefined
  /** Further settings of the configuration, by their key in it; null: the default. */
  readonly settings: Settings
  /** Settings of `request`, which join those of a configuration that is there. */
  readonly request: Settings
}

export type SetupFiles = Awaited<ReturnType<typeof setupFiles>>

/** A file that has to get this content. */
type Change = { readonly path: string; readonly content: string }

/** Files of root's unit, or of a person in the working directory. Throws UserError. */
export async function setupFiles(account: string | undefined, workingDirectory: string) {
  const isRoot = process.geteuid!() === 0
  if (account !== undefined && !isRoot)
    throw new UserError('Only root sets up an account: run it with sudo.', exitStatus.noPermission)
  const gid = isRoot ? await idOf('group', SERVICE_USER) : undefined
  const directory = isRoot ? configDirectory(account) : workingDirectory
  const named = (name: string): string => join(directory, account === undefined ? name : `${account}.${name}`)
  const alternatives = account === undefined ? ['yaml', 'yml'] : []
  return {
    config: account === undefined ? join(directory, 'kyc-tokend.config.json') : accountConfigPath(account),
    contents: Object.fromEntries(Object.entries(NAMES).map(([key, name]) => [key, named(name)])) as Record<
      ContentName,
      string
    >,
    /** Configurations that would be read instead of this one, or beside it. */
    others: alternatives.map((ending) => join(directory, `kyc-tokend.config.${ending}`)),
    attributes: (gid === undefined ? { mode: 0o600 } : { mode: 0o640, uid: 0, gid }) satisfies FileAttributes,
    /** Settings of a new configuration: the clients' group can read the token file of the daemon. */
    settings: gid === undefined ? {} : { tokenFiles: [{ path: 'token', mode: '0640' }] },
  }
}

/** Those of the paths that exist already. */
export function existing(paths: readonly string[]): string[] {
  return paths.filter((path) => lstatSync(path, { throwIfNoEntry: false }) !== undefined)
}

/**
 * The changes that the answers need. Other settings of a configuration stay. Throws UserError (78) if a
 * file exists that says something else, unless `force` is set, and for files and directories that the
 * daemon would refuse.
 */
export async function planSetup(
  files: SetupFiles,
  answers: Answers,
  { force }: { force: boolean },
): Promise<Change[]> {
  const { config, contents, others } = files
  const instead = existing(others)
  if (instead.length > 0) throw existsError(instead, 'remove it, or edit it instead')
  refuseUntrusted(config)
  const changes: Change[] = []
  for (const [name, text] of Object.entries(answers.contents)) {
    const path = contents[name as ContentName]
    if (text !== undefined && withoutNewline((await textIfAny(path)) ?? '') !== text)
      changes.push({ path, content: `${text}\n` })
  }
  const known = await readSettings(config)
  const wanted = wantedSettings(answers, { known, contents, isSamePair: changes.length === 0 })
  const settings = { ...(known ?? files.settings), ...wanted }
  if (!isDeepStrictEqual(settings, known))
    changes.push({ path: config, content: `${JSON.stringify(settings, null, 2)}\n` })
  const overwritten = existing(changes.map(({ path }) => path))
  if (overwritten.length > 0 && !force)
    throw existsError(overwritten, 'add --force to replace it', ', with other content')
  return changes
}

/** The settings that the answers need; those of a configuration that is there stay beside them. */
function wantedSettings(
  { baseUrl, contents: texts, settings, request, expiresAt }: Answers,
  {
    known,
    contents,
    isSamePair,
  }: { known: Settings | undefined; contents: SetupFiles['contents']; isSamePair: boolean },
): Settings {
  const knownEnd = (known?.['credentials'] as { expiresAt?: unknown } | undefined)?.expiresAt
  const endsAt = expiresAt ?? (isSamePair ? knownEnd : undefined)
  const file = (name: ContentName): { file: string } => ({ file: basename(contents[name]) })
  const credentials = {
    apiKey: texts.apiKey === undefined ? null : file('apiKey'),
    apiSecret: texts.apiSecret === undefined ? null : file('apiSecret'),
    ...(endsAt !== undefined && { expiresAt: endsAt }),
  }
  const former = settings['request'] ?? known?.['request']
  const joined = Object.keys(request).length === 0 ? {} : { request: { ...(former as object), ...request } }
  // A default need not be written where nothing else is.
  const meant = Object.entries(settings).filter(
    ([name, value]) => value !== null || known?.[name] !== undefined,
  )
  const url = isSameUrl(known?.['baseUrl'], baseUrl) ? known?.['baseUrl'] : baseUrl
  return { baseUrl: url, ...Object.fromEntries(meant), credentials, ...joined }
}

/** Throws UserError (78) if another user can have written the configuration, as the loader would. */
function refuseUntrusted(config: string): void {
  const stats = statSync(config, { throwIfNoEntry: false })
  const uid = process.geteuid!() || (localUser(SERVICE_USER)?.uid ?? 0)
  const [fault] = stats === undefined ? [] : permissionFaults(config, stats, { uid, holdsSecret: false })
  if (fault !== undefined)
    throw new UserError(`${config} ${fault}. Nothing was written.`, exitStatus.configuration)
}

/**
 * Makes this the only setup of the configuration (flock(2), which the kernel ends with the process); gives the
 * function that ends that. Throws UserError: 75 if another one runs, 78 if the directory cannot be used.
 */
export async function lockSetup({ config }: SetupFiles): Promise<() => Promise<void>> {
  const directory = dirname(config)
  const handle = await mkdir(directory, { recursive: true })
    .then(async () => open(directory, constants.O_RDONLY | constants.O_DIRECTORY))
    .catch(refuseUnwritten)
  if (loadLibc().lock(handle.fd)) return async () => handle.close()
  await handle.close()
  const message = `Another setup runs for ${config}: wait for its end, then run this again. Nothing was changed.`
  throw new UserError(message, exitStatus.tryAgain)
}

/** A new file until the service has confirmed it: a setup that is killed changes nothing. */
const stagedName = (path: string): string => `${path}.new`

/** Writes the changes beside their files; gives the new paths by the former ones. Throws UserError (78). */
export async function stageSetup(
  changes: readonly Change[],
  files: SetupFiles,
): Promise<ReadonlyMap<string, string>> {
  try {
    await discardSetup(files)
    for (const { path, content } of changes) {
      refuseOddTarget(path, await lstatIfAny(path))
      await replaceFile(stagedName(path), { text: content, attributes: files.attributes })
    }
  } catch (error) {
    refuseUnwritten(error)
  }
  return new Map(changes.map(({ path }) => [path, stagedName(path)]))
}

/** The file that stood before, until the daemon has the other one in use. */
const formerName = (path: string): string => `${path}.old`

/**
 * Has the staged files replace the others. Returns the function that brings those back, as they were. Throws
 * UserError (78) if one of them cannot be replaced: then all are as they were.
 */
export async function applySetup(staged: ReadonlyMap<string, string>): Promise<() => Promise<void>> {
  const replaced = new Set(existing([...staged.keys()]))
  const restore = async (): Promise<void> => {
    for (const path of staged.keys())
      await (replaced.has(path) ? rename(formerName(path), path) : rm(path, { force: true }))
  }
  for (const path of replaced) await link(path, formerName(path)).catch(refuseUnwritten)
  try {
    for (const [path, from] of staged) await rename(from, path)
  } catch (error) {
    await restore()
    refuseUnwritten(error)
  }
  return restore
}

/** Removes what was staged and not applied, also by a setup that was killed. Throws UserError (78). */
export async function discardSetup(files: SetupFiles): Promise<void> {
  for (const path of [files.config, ...Object.values(files.contents)])
    for (const name of [stagedName(path), formerName(path)])
      await rm(name, { force: true }).catch(refuseUnwritten)
}

/** Throws UserError (78) for an error of a file. */
function refuseUnwritten(error: unknown): never {
  if (!(error instanceof FileError) && errorCode(error) === undefined) throw error
  // The remedy of a read-only file system is for the unit.
  const isReadOnly = errorCode(error) === 'EROFS'
  const words = error instanceof FileError ? fileSentence(error, placeOf(process.env)) : errorMessage(error)
  const why = isReadOnly ? 'The directory is read-only: make it writable' : words
  throw new UserError(`${why}. Nothing was changed.`, exitStatus.configuration, { cause: error })
}

export function existsError(paths: readonly string[], remedy: string, as = ''): UserError {
  const message = `There is ${paths.join(' and ')} already${as}: ${remedy}.`
  return new UserError(message, exitStatus.configuration)
}

/** The settings of an existing configuration; undefined if there is none, or if it is no JSON object. */
async function readSettings(path: string): Promise<Settings | undefined> {
  const settings = parseJson((await textIfAny(path)) ?? '')
  return isRecord(settings) ? settings : undefined
}

function isSameUrl(known: unknown, wanted: string): boolean {
  const isUrl = typeof known === 'string' && URL.canParse(known)
  return isUrl && normaliseBaseUrl(known) === normaliseBaseUrl(wanted)
}

async function textIfAny(path: string): Promise<string | undefined> {
  const reading = await readConfigFile(path)
  if (reading.kind === 'unreadable')
    throw new UserError(`${path} ${reading.sentence}.`, exitStatus.configuration)
  return reading.kind === 'read' ? reading.bytes.toString() : undefined
}
