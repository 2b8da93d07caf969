// The paths that the daemon writes to: token files and sockets, with their owners, and no two at one path.
import { join, resolve } from 'node:path'
import { idOf, type IdKind } from '../host/ids.ts'
import { OWN_FILES } from '../host/paths.ts'
import { MAX_SOCKET_PATH_BYTES } from '../lib/libc.ts'
import type { Inputs } from './inputs.ts'
import type { Settings } from './schema.ts'

export interface TokenFileConfig extends Readonly<Pick<Settings['tokenFiles'][number], 'format' | 'mode'>> {
  /** Absolute. */
  readonly path: string
  /** With the format `template`, and only then: the text, with `{token}`. */
  readonly template?: string | null
  /** Numeric ids; null: as the file is created. */
  readonly uid: number | null
  readonly gid: number | null
}

export async function resolveTokenFiles(
  settings: Settings['tokenFiles'],
  { runtimeDirectory, inputs }: { runtimeDirectory: string; inputs: Inputs },
): Promise<TokenFileConfig[]> {
  return Array.fromAsync(settings, async (input, index) => {
    const { path, mode, format, owner, group } = input
    const at = `tokenFiles[${index}]`
    if ((mode & 0o004) !== 0)
      inputs.warn(`${at}.mode`, 'lets every user of this host read the token: set "0640" and a group')
    if ((mode & 0o020) !== 0)
      inputs.warn(`${at}.mode`, 'lets the group write the file, which is restored then: "0640" lets it read')
    return {
      path: resolve(runtimeDirectory, path),
      format,
      template: templateOf(`${at}.template`, input, inputs),
      mode,
      uid: await idOrNull(`${at}.owner`, 'user', owner, inputs),
      gid: await idOrNull(`${at}.group`, 'group', group, inputs),
    }
  })
}

function templateOf(
  at: string,
  { format, template }: Settings['tokenFiles'][number],
  { fault }: Inputs,
): string | null {
  if (format === 'template' && template === null)
    return fault(at, 'is missing, and "format": "template" needs it: write the text, with {token} in it')
  if (format !== 'template' && template !== null)
    return fault(at, 'is of use with "format": "template" only: set that, or leave it out')
  return template
}

/** The id of an account; null, too, if none is named. */
async function idOrNull(
  at: string,
  kind: IdKind,
  account: string | number | null,
  { fault }: Inputs,
): Promise<number | null> {
  if (account === null) return null
  const id = await idOf(kind, account)
  if (id !== undefined) return id
  const make = kind === 'user' ? 'useradd' : 'groupadd'
  const sentence =
    `there is no ${kind} ${account} on this host: ` +
    `make it (${make} --system ${account}), or write its number if only a directory service knows it`
  return fault(at, sentence)
}

export async function resolveSocket(
  at: 'ipc' | 'http',
  { group, ...settings }: Settings['ipc'],
  { runtimeDirectory, inputs }: { runtimeDirectory: string; inputs: Inputs },
) {
  const { mode, allow, maxConnections, maxConnectionsPerUser } = settings
  const path = resolve(runtimeDirectory, settings.path)
  const bytes = Buffer.byteLength(path)
  if (bytes > MAX_SOCKET_PATH_BYTES)
    inputs.fault(
      `${at}.path`,
      `is ${bytes} bytes long with its directory, and a socket's path has ` +
        `at most ${MAX_SOCKET_PATH_BYTES}: choose a shorter one, or a shorter runtimeDirectory`,
    )
  if ((mode & 0o002) !== 0 && allow.users.length + allow.groups.length === 0)
    inputs.warn(`${at}.mode`, 'lets every user of this host take the token: set "0660" and a group, or allow')
  const idsOf = async (key: 'users' | 'groups', kind: IdKind): Promise<number[]> => {
    const ids = await Array.fromAsync(allow[key], async (account, index) =>
      idOrNull(`${at}.allow.${key}[${index}]`, kind, account, inputs),
    )
    return ids.filter((id) => id !== null)
  }
  return {
    ...settings,
    /** Absolute. */
    path,
    gid: await idOrNull(`${at}.group`, 'group', group, inputs),
    /** Who may use it beside root and the daemon's user; both empty: the socket's mode alone decides. */
    allow: { uids: await idsOf('users', 'user'), gids: await idsOf('groups', 'group') },
    maxConnectionsPerUser: Math.min(maxConnectionsPerUser, maxConnections),
  }
}

interface Paths extends Readonly<Record<'file' | keyof typeof OWN_FILES, string>> {
  readonly tokenFiles: readonly TokenFileConfig[]
  readonly ipc: { readonly path: string }
  readonly http: { readonly path: string } | null
  readonly service: { readonly assertion: { readonly file: string | null } | null }
}

/** No two settings may write to one path, and none to a file that is read. */
export function checkPaths(config: Paths, { files, fault }: Inputs): void {
  const { file, tokenFiles, ipc, http, runtimeDirectory, stateDirectory, service } = config
  const read = [...Object.values(files), service.assertion?.file ?? file]
  const ofDaemon = (['runtimeDirectory', 'stateDirectory'] as const).flatMap((directory) =>
    Object.values(OWN_FILES[directory]).map(
      (name) => [join(config[directory], name), 'a file of the daemon itself'] as const,
    ),
  )
  const holders = new Map<string, string>([
    ...read.map((path) => [path, 'a file that the configuration is read from'] as const),
    [file, 'the configuration itself'],
    ...ofDaemon,
    [runtimeDirectory, 'the runtime directory'],
    [stateDirectory, 'the state directory'],
  ])
  const written = [
    ...tokenFiles.map(({ path }, index) => [`tokenFiles[${index}].path`, path] as const),
    ['ipc.path', ipc.path] as const,
    ...(http === null ? [] : [['http.path', http.path] as const]),
  ]
  for (const [at, path] of written) {
    const holder = holders.get(path)
    if (holder !== undefined) fault(at, `is ${path}, and that is ${holder}: choose another path`)
    else holders.set(path, `${at} too`)
  }
}
