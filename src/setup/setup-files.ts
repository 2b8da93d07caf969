// The files of `setup`: new ones beside those in use, and the steps by which they take their places. After each step
// the configuration names secrets that belong together, so a setup that is killed leaves the former pair or the new one.
import { randomBytes } from 'node:crypto'
import { constants, existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { open, mkdir, rename, rm } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { replaceFile, type FileAttributes } from '../files/replace-file.ts'
import { installationOf } from '../host/account.ts'
import { permissionFaults } from '../config/read.ts'
import { idOf, localUser } from '../host/ids.ts'
import { SERVICE_USER } from '../host/paths.ts'
import { exitStatus, UserError, withSystemFallback } from '../lib/error.ts'
import { parseRecord } from '../lib/input.ts'
import { loadLibc } from '../lib/libc.ts'
import type { Answers } from './setup-answers.ts'

const NAMES = { apiKey: 'api-key', apiSecret: 'api-secret' } as const
type SecretName = keyof typeof NAMES
type SecretPaths = Readonly<Record<SecretName, string>>
/** Names of staged files, which a killed setup leaves: no configuration and no secret of anybody else. */
const STAGED = /^\.setup-[0-9a-f]{8}\./

export interface SetupFiles {
  readonly config: string
  readonly secrets: SecretPaths
  /** Configurations that would be read beside this one. */
  readonly others: readonly string[]
  readonly attributes: FileAttributes
  /** The files are the unit's: root's, for the daemon's user. */
  readonly isOfUnit: boolean
}

/** Files of root's unit, or of a person in the working directory. Throws UserError (77). */
export function setupFiles(account: string | undefined, workingDirectory: string): SetupFiles {
  const isRoot = process.geteuid!() === 0
  if (account !== undefined && !isRoot)
    throw new UserError('Only root sets up an account: run it with sudo.', exitStatus.noPermission)
  const gid = isRoot ? idOf('group', SERVICE_USER) : undefined
  const config = isRoot ? installationOf(account).config : join(workingDirectory, 'kyc-tokend.config.json')
  const directory = dirname(config)
  const named = (name: string): string => join(directory, account === undefined ? name : `${account}.${name}`)
  const endings = account === undefined ? ['yaml', 'yml'] : []
  return {
    config,
    secrets: { apiKey: named(NAMES.apiKey), apiSecret: named(NAMES.apiSecret) },
    others: endings.map((ending) => join(directory, `kyc-tokend.config.${ending}`)),
    attributes: gid === undefined ? { mode: 0o600 } : { mode: 0o640, uid: 0, gid },
    isOfUnit: gid !== undefined,
  }
}

/** Throws UserError (78) for a configuration that is there already. */
export function refuseExisting({ config, others }: SetupFiles, { force }: { force: boolean }): void {
  const other = others.find((path) => existsSync(path))
  if (other !== undefined)
    throw new UserError(`There is ${other} already: remove it, or edit it instead.`, exitStatus.configuration)
  if (!existsSync(config)) return
  if (!force)
    throw new UserError(`There is ${config} already: add --force to replace it.`, exitStatus.configuration)
  // Its settings stay: they must not be those of another user.
  const uid = process.geteuid!() || (localUser(SERVICE_USER)?.uid ?? 0)
  const { mode, uid: owner } = statSync(config)
  const [fault] = permissionFaults(config, { mode, uid: owner === uid ? 0 : owner }, { holdsSecret: false })
  if (fault !== undefined)
    throw new UserError(`${config} ${fault}. Nothing was changed.`, exitStatus.configuration)
}

/**
 * Makes this the only setup of the configuration until the lock is disposed of, and staged files with it. The lock is a
 * file that nobody else may open, so nobody else can hold it. Throws UserError (75).
 */
export async function lockSetup(files: SetupFiles): Promise<AsyncDisposable> {
  const { config } = files
  await mkdir(dirname(config), { recursive: true })
  const path = join(dirname(config), `.${basename(config)}.setup-lock`)
  const flags = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW
  const handle = await open(path, flags, 0o600)
  const isMine = loadLibc().lock(handle.fd)
  // Its former owner may have removed it meanwhile.
  const isThere = (await handle.stat()).ino === statSync(path, { throwIfNoEntry: false })?.ino
  const end = async (): Promise<void> => {
    await discardStaged(files)
    await rm(path, { force: true })
    await handle.close()
  }
  if (isMine && isThere) return { [Symbol.asyncDispose]: end }
  await handle.close()
  const message = `Another setup runs for ${config}: wait for its end, then run this again. Nothing was changed.`
  throw new UserError(message, exitStatus.tryAgain)
}

/** The new configuration, if it differs from the one in use: a file beside it, with its secrets. */
export function planSetup(files: SetupFiles, { settings, secrets, document }: Answers) {
  const { config, attributes, isOfUnit } = files
  const names = (['apiKey', 'apiSecret'] as const).filter((name) => secrets[name] !== undefined)
  const former = parseRecord(textIfAny(config) ?? '')
  const standard = isOfUnit ? { tokenFiles: [{ path: 'token', mode: '0640' }] } : {}
  const kept = document === undefined && former !== undefined ? former : standard
  /** With the secrets in these files. */
  const settingsWith = (paths: SecretPaths): object => {
    const sources = names.map((name) => [name, { file: basename(paths[name]) }])
    const credentials = { ...(settings?.['credentials'] as object), ...Object.fromEntries(sources) }
    return { ...kept, ...settings, credentials }
  }
  const writeConfig = async (path: string, paths: SecretPaths): Promise<void> => {
    const json = (): string => `${JSON.stringify(settingsWith(paths), null, 2)}\n`
    await replaceFile(path, { text: settings === null ? (document ?? '') : json(), attributes })
  }
  const writeSecret = async (name: SecretName, path: string): Promise<void> =>
    replaceFile(path, { text: `${secrets[name]}\n`, attributes })
  const hasSecrets = names.every((name) => textIfAny(files.secrets[name]) === `${secrets[name]}\n`)
  return {
    isChange: settings === null || !hasSecrets || !isDeepStrictEqual(former, settingsWith(files.secrets)),
    written: [config, ...names.map((name) => files.secrets[name])],
    /** Writes files beside those in use, for a check. The steps put them in place, each whole. Throws FileError. */
    async stage() {
      const id = randomBytes(4).toString('hex')
      const beside = (name: string): string => join(dirname(config), `.setup-${id}.${name}`)
      const staged = { apiKey: beside(NAMES.apiKey), apiSecret: beside(NAMES.apiSecret) }
      for (const name of names) await writeSecret(name, staged[name])
      await writeConfig(beside('json'), staged)
      const steps = [
        // From here on the new pair is in use, by the staged names of its secrets.
        async () => rename(beside('json'), config),
        ...names.map((name) => async () => writeSecret(name, files.secrets[name])),
        async () => writeConfig(config, files.secrets),
      ]
      return { config: beside('json'), steps }
    },
  }
}

/** Removes staged files, also those of a setup that was killed, except those that the configuration in use names. */
export async function discardStaged({ config }: SetupFiles): Promise<void> {
  const inUse = textIfAny(config) ?? ''
  const left = readdirSync(dirname(config)).filter(
    (name) => STAGED.test(name) && !inUse.includes(`"${name}"`),
  )
  for (const name of left) await rm(join(dirname(config), name), { force: true })
}

function textIfAny(path: string): string | undefined {
  return withSystemFallback(undefined, () => readFileSync(path, 'utf8'))
}
