// Checks a configuration against the unit that runs it: access to paths, credentials and sockets, as systemd knows them.
import { existsSync, statSync } from 'node:fs'
import { isAbsolute, join } from 'node:path'

import type { Config } from '../config/config.ts'
import { dropInCure, serviceEnvironment, unitNames } from '../lib/account.ts'
import { fault, ok, warning, type Finding } from '../lib/finding.ts'
import type { WrittenDirectory } from './check-paths.ts'
import {
  ALERT_COMMAND,
  unitCredentials,
  unitProperties,
  type SystemdState,
  type UnitProperties,
} from './systemd.ts'

/** A script must be read to be run. */
const RUN_BY_OTHERS = 0o005

/** The unit that runs a configuration. */
export interface Unit {
  /** Without its suffix. */
  readonly name: string
  readonly properties: UnitProperties
  /** Null if they are not known. */
  readonly credentials: readonly { readonly id: string; readonly path: string }[] | null
}

export type UnitSockets = Awaited<ReturnType<typeof findSockets>>

/** The socket units of an account by the paths at which they listen, and whether its daemon runs. */
export async function findSockets(account: string | undefined) {
  const { unit, httpUnit } = unitNames(account)
  const { RUNTIME_DIRECTORY: directory } = serviceEnvironment(account)
  const sockets = new Map<string, { name: string; state: string | undefined }>()
  for (const [name, file] of Object.entries({
    [`${unit}.socket`]: 'ipc.sock',
    [`${httpUnit}.socket`]: 'http.sock',
  })) {
    const properties = await unitProperties(name, ['ActiveState', 'Listen'])
    // Of a masked unit systemd reads nothing; its socket is where it is shipped.
    if (properties?.['LoadState'] === 'masked') sockets.set(join(directory, file), { name, state: 'masked' })
    else
      for (const path of wordsOf(properties?.['Listen']))
        sockets.set(path, { name, state: properties?.['ActiveState'] })
  }
  const service = `${unit}.service`
  const running = await unitProperties(service, ['ActiveState'])
  return { sockets, service, isActive: running?.['ActiveState'] === 'active' }
}

/** Null if the unit is not installed, or no systemd runs here. */
export async function findUnit(account: string | undefined): Promise<Unit | null> {
  const { unit: name } = unitNames(account)
  const properties = await unitProperties(`${name}.service`, [...ACCESS_PROPERTIES, 'ImportCredential'])
  if (properties?.['LoadState'] !== 'loaded') return null
  return { name, properties, credentials: await unitCredentials(`${name}.service`) }
}

/** By path: directories that the configuration writes to and the unit may not, and inputs that it may not read. */
export function accessFindings(
  { file, inputs }: Config,
  { name, properties }: Unit,
  written: readonly WrittenDirectory[],
): ReadonlyMap<string, Finding> {
  const subjects = [
    ...written.map(({ path, setting }) => {
      const verb = readProblem(properties, path) === undefined ? 'written' : 'seen'
      const subject = `${setting}: the directory ${path} cannot be ${verb}`
      return { path, subject, problem: writeProblem(properties, path) }
    }),
    ...inputs.map((path) => ({
      path,
      subject: `the file ${path} cannot be read`,
      problem: readProblem(properties, path),
    })),
  ]
  const findings = new Map<string, Finding>()
  for (const { path, subject, problem } of subjects) {
    if (problem === undefined) continue
    const { because, settings } = problem
    const remedy =
      settings.length > 0
        ? `set another path, or allow this one: ${dropInCure(name, settings)}`
        : 'set a path elsewhere, such as below /srv'
    findings.set(path, fault(`${file}: ${subject} by ${name}.service (${because}): ${remedy}`))
  }
  return findings
}

/** Drop-ins that keep the unit from starting when a directory goes, and credentials that are gone. For root. */
export function unitFindings(
  { name, properties, credentials }: Unit,
  { systemdCredentials: wanted, file }: Pick<Config, 'systemdCredentials' | 'file'>,
  alerts: Omit<SystemdState, 'unit'>,
): Finding[] {
  const unit = `${name}.service`
  const neededPaths = wordsOf(properties['ReadWritePaths']).filter((path) => isAbsolute(path))
  const lostCredentials = credentials?.filter(({ path }) => isAbsolute(path) && !existsSync(path)) ?? []
  const hidesAny = credentials === null || (properties['ImportCredential'] ?? '') !== ''
  const unknown = hidesAny ? [] : wanted.filter((id) => !credentials.some((one) => one.id === id))
  return [
    ...neededPaths.map((path) => {
      const setting = `a drop-in of ${unit} has ReadWritePaths=${path}`
      const remedy = `write ReadWritePaths=-${path}, then sudo systemctl daemon-reload`
      return existsSync(path)
        ? warning(`${setting}: without that directory the daemon would not start; ${remedy}`)
        : fault(`${setting}, which does not exist, so the daemon does not start (226/NAMESPACE): ${remedy}`)
    }),
    ...lostCredentials.map(({ id, path }) =>
      fault(
        `a drop-in of ${unit} loads the credential ${id} from ${path}, which does not exist, so the daemon does not start (243/CREDENTIALS): make the file, or correct the drop-in and run sudo systemctl daemon-reload`,
      ),
    ),
    ...unknown.map((id) =>
      fault(
        `${file}: ${unit} loads no credential ${id}: add LoadCredential=${id}:/PATH to it (sudo systemctl edit ${unit}), then sudo systemctl restart ${unit}`,
      ),
    ),
    ...alertCommandFindings(alerts),
  ]
}

/** The alert command is run by another user than root. */
function alertCommandFindings({ alertCommand, alertProblem }: Omit<SystemdState, 'unit'>): Finding[] {
  const mode = statSync(ALERT_COMMAND, { throwIfNoEntry: false })?.mode
  if (mode === undefined) return []
  const isRunnable = (mode & RUN_BY_OTHERS) === RUN_BY_OTHERS
  const sentence = `the alert command cannot be run by its unit: sudo chmod 755 ${ALERT_COMMAND}`
  const failure = alertCommand?.failure ?? null
  return [
    ...(isRunnable ? [] : [fault(sentence)]),
    ...(alertProblem === null ? [] : [warning(alertProblem)]),
    ...(failure === null ? [] : [warning(`the alert command failed at its last run, ${failure}`)]),
  ]
}

/**
 * A socket that systemd listens at: looked at, not connected to, because a connection would start the daemon.
 * Undefined if no socket unit listens at this path.
 */
export function unitSocketFinding(
  { path, name }: { path: string; name: string },
  { sockets, service, isActive }: UnitSockets,
): Finding | undefined {
  const own = sockets.get(path)
  if (own === undefined) return undefined
  if (own.state !== 'active') {
    const verb = own.state === 'masked' ? 'unmask' : 'start'
    return warning(
      `${name} is closed, because ${own.name} is ${own.state}: sudo systemctl ${verb} ${own.name}`,
    )
  }
  return ok(
    isActive
      ? `${name} is served by ${service}, which runs`
      : `${name} is open: ${own.name} listens, and the next client starts the daemon`,
  )
}

// ---- The rules: may a unit write at a path, may it read there? Pure, of the properties that systemd shows. ----

const ACCESS_PROPERTIES = ['ProtectSystem', 'ProtectHome', 'PrivateTmp', 'ReadWritePaths', 'StateDirectory']
const HOMES = ['/home', '/root', '/run/user']
const PRIVATE_TMPS = ['/tmp', '/var/tmp']
const ALWAYS_WRITABLE = ['/dev', '/proc', '/sys']

interface AccessProblem {
  /** The setting of the unit that forbids it, such as `ProtectSystem=strict`. */
  readonly because: string
  /** Settings of a drop-in that allow it; none: only another directory helps. */
  readonly settings: readonly string[]
}

/** The reason why the unit cannot write in this directory, whatever its mode; undefined if it can. */
export function writeProblem(unit: UnitProperties, directory: string): AccessProblem | undefined {
  const allow = `ReadWritePaths=-${directory}`
  const hidden = readProblem(unit, directory)
  if (hidden !== undefined)
    return { ...hidden, settings: hidden.settings.length > 0 ? [...hidden.settings, allow] : [] }
  const states = wordsOf(unit['StateDirectory']).map((name) => join('/var/lib', name.split(':')[0] ?? ''))
  const listed = wordsOf(unit['ReadWritePaths']).map((word) => word.replace(/^[-+]+/, ''))
  if (isBelowOne([...listed, ...states, ...ALWAYS_WRITABLE], directory)) return undefined
  const isReadOnlyHome = unit['ProtectHome'] === 'read-only' && isBelowOne(HOMES, directory)
  if (!isReadOnlyHome && unit['ProtectSystem'] !== 'strict') return undefined
  return { because: isReadOnlyHome ? 'ProtectHome=read-only' : 'ProtectSystem=strict', settings: [allow] }
}

/** The reason why the unit cannot see this path, whatever its mode; undefined if it can. */
export function readProblem(unit: UnitProperties, path: string): AccessProblem | undefined {
  const { ProtectHome: homes = '', PrivateTmp: tmp = '' } = unit
  if (['yes', 'tmpfs'].includes(homes) && isBelowOne(HOMES, path))
    return { because: `ProtectHome=${homes}`, settings: ['ProtectHome=read-only'] }
  // It has directories of its own at these paths, which no other program sees.
  if (['yes', 'disconnected'].includes(tmp) && isBelowOne(PRIVATE_TMPS, path))
    return { because: `PrivateTmp=${tmp}`, settings: [] }
  return undefined
}

function wordsOf(list = ''): string[] {
  return list.split(/\s+/).filter((word) => word !== '')
}

function isBelowOne(parents: readonly string[], path: string): boolean {
  return parents.some((parent) => path === parent || path.startsWith(`${parent}/`))
}
