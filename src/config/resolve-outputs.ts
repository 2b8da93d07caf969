// The paths that the daemon writes to: token files and sockets, with modes, owners and groups, and no two at one path.
import { isUtf8 } from 'node:buffer'
import { join, resolve } from 'node:path'
import { placeholders, placeholdersIn } from '../lib/template.ts'
import { idOf, type IdKind } from '../lib/posix-ids.ts'
import { MAX_SOCKET_PATH_BYTES } from '../lib/paths.ts'
import type { Inputs } from './inputs.ts'
import { printable, type Diagnostics } from './issues.ts'
import { nearestName } from './nearest.ts'
import type { Settings } from './schema.ts'

type TokenFileInput = Settings['tokenFiles'][number]

export interface TokenFileConfig extends Readonly<Pick<TokenFileInput, 'format' | 'mode'>> {
  /** Absolute. */
  readonly path: string
  /** With the format `template`, and only then; read when the configuration was. */
  readonly template?: string | null
  /** Numeric ids; null: as the file is created. */
  readonly uid: number | null
  readonly gid: number | null
}

const MAX_TEMPLATE_BYTES = 64 * 1024

/** Files that the daemon itself writes into its directories. */
const OWN_FILES = {
  runtimeDirectory: ['alert.json', 'alert-resolved.json', 'kept.json', 'instance.lock'],
  stateDirectory: ['instance.lock', 'key', 'memory.json', 'written-files.json'],
} as const

/** `at` is the key path of a setting. */
export function createOutputs(options: {
  readonly runtimeDirectory: string
  /** The directory to which the paths of templates are relative. */
  readonly directory: string
  readonly inputs: Inputs
  readonly diagnostics: Diagnostics
}) {
  const { runtimeDirectory, directory, inputs } = options
  const { fault, warn } = options.diagnostics
  /** The paths that something is written to, and the settings that say so. */
  const claims: { readonly at: string; readonly path: string }[] = []

  function claim(at: string, path: string): string {
    const whole = resolve(runtimeDirectory, path)
    claims.push({ at, path: whole })
    return whole
  }

  async function idOrNull(at: string, kind: IdKind, account: string | number | null): Promise<number | null> {
    if (account === null) return null
    const id = await idOf(kind, account)
    if (id !== undefined) return id
    const make = kind === 'user' ? 'useradd' : 'groupadd'
    fault(
      at,
      `there is no ${kind} ${String(account)} on this host: make it (${make} --system ${String(account)}), or write its number if only a directory service knows it`,
    )
    return null
  }

  async function idsOf(
    at: string,
    kind: IdKind,
    accounts: readonly (string | number)[],
  ): Promise<readonly number[]> {
    const ids = await Array.fromAsync(accounts, async (account, index) =>
      idOrNull(`${at}[${index}]`, kind, account),
    )
    return [...new Set(ids.filter((id) => id !== null))]
  }

  async function template(
    at: string,
    { format, template: path }: TokenFileInput,
  ): Promise<string | undefined> {
    if (format !== 'template' && path === null) return undefined
    if (format !== 'template')
      return fault(at, 'is of use with "format": "template" only: set that, or leave it out')
    const remedy = 'name a file with the text to write, in which ${accessToken} is filled in'
    if (path === null) return fault(at, `is missing, and "format": "template" needs it: ${remedy}`)
    const bytes = await inputs.file(at, path, remedy)
    if (bytes === undefined) return undefined
    const problem = templateProblem(bytes)
    if (problem !== undefined) return fault(at, `the file ${resolve(directory, path)} ${problem}`)
    return bytes.toString()
  }

  return {
    async tokenFiles(files: Settings['tokenFiles']): Promise<TokenFileConfig[]> {
      return Array.fromAsync(files, async (input, index) => {
        const { path, mode, format, owner, group } = input
        const at = `tokenFiles[${index}]`
        if ((mode & 0o004) !== 0)
          warn(`${at}.mode`, 'lets every user of this host read the token: set "0640" and a group')
        if ((mode & 0o020) !== 0)
          warn(`${at}.mode`, 'lets the group write the file, which is restored then: "0640" lets it read')
        return {
          path: claim(`${at}.path`, path),
          format,
          template: (await template(`${at}.template`, input)) ?? null,
          mode,
          uid: await idOrNull(`${at}.owner`, 'user', owner),
          gid: await idOrNull(`${at}.group`, 'group', group),
        }
      })
    },

    async socket(at: 'ipc' | 'http', input: Settings['ipc']) {
      const path = claim(`${at}.path`, input.path)
      const bytes = Buffer.byteLength(path)
      if (bytes > MAX_SOCKET_PATH_BYTES)
        fault(
          `${at}.path`,
          `is ${bytes} bytes long with its directory, and a socket's path has at most ${MAX_SOCKET_PATH_BYTES}: choose a shorter one, or a shorter runtimeDirectory`,
        )
      const { group, ...settings } = input
      const uids = await idsOf(`${at}.allow.users`, 'user', input.allow.users)
      const gids = await idsOf(`${at}.allow.groups`, 'group', input.allow.groups)
      if ((input.mode & 0o002) !== 0 && uids.length + gids.length === 0)
        warn(`${at}.mode`, 'lets every user of this host take the token: set "0660" and a group, or allow')
      return {
        ...settings,
        /** Absolute. */
        path,
        gid: await idOrNull(`${at}.group`, 'group', group),
        /** Users and groups that may use it beside root and the daemon's user; both empty: the socket's mode alone decides. */
        allow: { uids, gids },
        maxConnectionsPerUser: Math.min(input.maxConnectionsPerUser, input.maxConnections),
      }
    },

    /** No two settings may write to one path, and none to a file that is read. */
    check(config: Readonly<Record<'file' | keyof typeof OWN_FILES, string>>): void {
      const taken = new Map<string, string>()
      for (const path of inputs.files) taken.set(path, 'a file that the configuration is read from')
      taken.set(config.file, 'the configuration itself')
      for (const own of ['runtimeDirectory', 'stateDirectory'] as const)
        for (const name of OWN_FILES[own]) taken.set(join(config[own], name), 'a file of the daemon itself')
      taken.set(config.runtimeDirectory, 'the runtime directory')
      taken.set(config.stateDirectory, 'the state directory')
      for (const { at, path } of claims) {
        const holder = taken.get(path)
        if (holder !== undefined) fault(at, `is ${path}, and that is ${holder}: choose another path`)
        else taken.set(path, `${at} too`)
      }
    },
  }
}

/** Why it is no template, as the words that follow the name of the file. */
function templateProblem(bytes: Buffer): string | undefined {
  if (bytes.length > MAX_TEMPLATE_BYTES) return 'is larger than 64 KiB: shorten it'
  if (!isUtf8(bytes)) return 'is not valid UTF-8: save it as UTF-8'
  const names = placeholdersIn(bytes.toString())
  if (names === null) return 'has a "${" without its "}": close it, or write "$${" for a literal "${"'
  const unknown = new Set(names.filter((name) => !placeholders.some((known) => known === name)))
  if (unknown.size > 0) return unknownPlaceholders([...unknown])
  return names.includes('accessToken')
    ? undefined
    : 'does not hold ${accessToken}: write it where the token belongs'
}

function unknownPlaceholders(names: readonly string[]): string {
  return names
    .map((name) => {
      const near = nearestName(name, placeholders)
      const meant = near === undefined ? `known are ${placeholders.join(', ')}` : `did you mean "${near}"?`
      return `holds the unknown placeholder ${printable(name)}: ${meant}`
    })
    .join(', and ')
}
