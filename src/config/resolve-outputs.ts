// The paths that the daemon writes to: token files and sockets, with modes, owners and groups, and no two at one path.
import { isUtf8 } from 'node:buffer'
import { join, resolve } from 'node:path'

import { parseTemplate, placeholders, type Template } from '../lib/template.ts'
import { idOf, type IdKind } from '../lib/posix-ids.ts'
import { MAX_SOCKET_PATH_BYTES } from '../lib/paths.ts'
import type { Config, SocketConfig, TokenFileConfig } from './config.ts'
import type { Inputs } from './inputs.ts'
import { printable, type Diagnostics } from './issues.ts'
import { nearestName } from './nearest.ts'
import type { ValidPart } from './validate.ts'

type TokenFileInput = NonNullable<ValidPart['tokenFiles'][number]>

/** A path that something is written to, and the setting that says so. */
interface Claim {
  readonly at: string
  readonly path: string
}
interface OutputContext {
  readonly runtimeDirectory: string
  /** To which templates are relative. */
  readonly directory: string
  readonly baseUrl: string
  readonly claims: Claim[]
  readonly inputs: Inputs
  readonly diagnostics: Diagnostics
}

export async function resolveTokenFiles(
  inputs: ValidPart['tokenFiles'],
  outputs: OutputContext,
): Promise<TokenFileConfig[]> {
  const { runtimeDirectory, diagnostics, claims } = outputs
  const files: TokenFileConfig[] = []
  for (const [index, input] of inputs.entries()) {
    if (input?.path === undefined) continue
    const at = `tokenFiles[${index}]`
    const { mode, format, owner, group } = input
    if ((mode & 0o004) !== 0)
      diagnostics.warn(
        `${at}.mode`,
        'lets every user of this host read the token: "0640" with a group lets only its members',
      )
    if ((mode & 0o020) !== 0)
      diagnostics.warn(
        `${at}.mode`,
        'lets the group write the file, which is restored then: "0640" lets it read',
      )
    const path = resolve(runtimeDirectory, input.path)
    claims.push({ at: `${at}.path`, path })
    files.push({
      path,
      format,
      template: resolveTemplate(input, { ...outputs, at: `${at}.template` }),
      mode,
      uid: await idOrNull('user', owner, { at: `${at}.owner`, diagnostics }),
      gid: await idOrNull('group', group, { at: `${at}.group`, diagnostics }),
    })
  }
  return files
}

const MAX_TEMPLATE_BYTES = 64 * 1024

function resolveTemplate(
  { format, template: path }: TokenFileInput,
  { at, baseUrl, directory, inputs, diagnostics }: OutputContext & { at: string },
): Template | null {
  const fault = (sentence: string): null => {
    diagnostics.fault(at, sentence)
    return null
  }
  if (format !== 'template')
    return path ? fault('is of use with "format": "template" only: set that, or leave it out') : null
  const remedy = 'name a file with the text to write, in which ${accessToken} is filled in'
  if (!path) return fault(`is missing, and "format": "template" needs it: ${remedy}`)
  const bytes = inputs.file(at, path, { remedy })
  if (bytes === undefined) return null
  const template = readTemplate(bytes)
  if (typeof template === 'string') return fault(`the file ${resolve(directory, path)} ${template}`)
  // The base URL is known now, and changes with the configuration only.
  return template.map((piece) =>
    typeof piece === 'object' && piece.placeholder === 'baseUrl' ? baseUrl : piece,
  )
}

/** The template, or why it is none: goes on from the name of the file. */
function readTemplate(bytes: Buffer): Template | string {
  if (bytes.length > MAX_TEMPLATE_BYTES) return 'is larger than 64 KiB: shorten it'
  if (!isUtf8(bytes)) return 'is not valid UTF-8: save it as UTF-8'
  const parsed = parseTemplate(bytes.toString('utf8'))
  if (parsed.kind === 'unclosed')
    return 'has a "${" without its "}": close it, or write "$${" for a literal "${"'
  if (parsed.kind === 'unknown') return unknownPlaceholders(parsed.names)
  if (parsed.template.some((piece) => typeof piece === 'object' && piece.placeholder === 'accessToken'))
    return parsed.template
  return 'does not hold ${accessToken}: write it where the token belongs'
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

export async function resolveSocket(
  at: 'ipc' | 'http',
  input: ValidPart['ipc'],
  { runtimeDirectory, diagnostics, claims }: OutputContext,
): Promise<SocketConfig> {
  const path = resolve(runtimeDirectory, input.path)
  claims.push({ at: `${at}.path`, path })
  const bytes = Buffer.byteLength(path)
  if (bytes > MAX_SOCKET_PATH_BYTES)
    diagnostics.fault(
      `${at}.path`,
      `is ${bytes} bytes long with its directory, and a socket's path has at most ${MAX_SOCKET_PATH_BYTES}: choose a shorter one, or a shorter runtimeDirectory`,
    )
  const { mode, group, maxConnections, maxConnectionsPerUser, maxRequestsPerSecond } = input
  const allow = {
    uids: await idsOf('user', input.allow.users, { at: `${at}.allow.users`, diagnostics }),
    gids: await idsOf('group', input.allow.groups, { at: `${at}.allow.groups`, diagnostics }),
  }
  if ((mode & 0o002) !== 0 && allow.uids.length + allow.gids.length === 0)
    diagnostics.warn(
      `${at}.mode`,
      'lets every user of this host take the token: set "0660" and a group, or allow',
    )
  return {
    path,
    mode,
    gid: await idOrNull('group', group, { at: `${at}.group`, diagnostics }),
    allow,
    maxConnections,
    maxConnectionsPerUser: Math.min(maxConnectionsPerUser, maxConnections),
    maxRequestsPerSecond,
  }
}

async function idsOf(
  kind: IdKind,
  accounts: readonly (string | number | undefined)[],
  options: { at: string; diagnostics: Diagnostics },
): Promise<number[]> {
  const ids = new Set<number>()
  for (const [index, account] of accounts.entries()) {
    const id = await idOrNull(kind, account ?? null, { ...options, at: `${options.at}[${index}]` })
    if (id !== null) ids.add(id)
  }
  return [...ids]
}

async function idOrNull(
  kind: IdKind,
  account: string | number | null,
  { at, diagnostics }: { at: string; diagnostics: Diagnostics },
): Promise<number | null> {
  if (account === null) return null
  const id = await idOf(kind, account)
  if (id !== undefined) return id
  const make = kind === 'user' ? 'useradd' : 'groupadd'
  diagnostics.fault(
    at,
    `there is no ${kind} ${String(account)} on this host: make it (${make} --system ${String(account)}), or write its number if only a directory service knows it`,
  )
  return null
}

/** Files that the daemon itself writes into its directories. */
const OWN_FILES = {
  runtimeDirectory: [
    'alert.json',
    'alert-resolved.json',
    'kept.json',
    'instance.lock',
    'lock',
    'token.front',
  ],
  stateDirectory: ['instance.lock', 'key', 'lock', 'memory.json', 'written-files.json'],
} as const

/** No two settings may write to one path, and none to a file that is read. */
export function checkPaths(config: Config, { inputs, diagnostics, claims }: OutputContext): void {
  const taken = new Map<string, string>()
  for (const path of inputs.files) taken.set(path, 'a file that the configuration is read from')
  taken.set(config.file, 'the configuration itself')
  for (const own of ['runtimeDirectory', 'stateDirectory'] as const)
    for (const name of OWN_FILES[own]) taken.set(join(config[own], name), 'a file of the daemon itself')
  taken.set(config.runtimeDirectory, 'the runtime directory')
  taken.set(config.stateDirectory, 'the state directory')
  for (const { at, path } of claims) {
    const holder = taken.get(path)
    if (holder !== undefined) diagnostics.fault(at, `is ${path}, and that is ${holder}: choose another path`)
    else taken.set(path, `${at} too`)
  }
}
