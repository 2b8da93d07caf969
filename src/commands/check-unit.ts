// Checks a configuration against the unit that runs it: access to paths, credentials and sockets, as systemd knows them.
import { existsSync, statSync } from 'node:fs'
import { isAbsolute, join } from 'node:path'

import type { Config } from '../config/config.ts'
import { serviceEnvironment, type UnitNames } from '../lib/account.ts'
import { fault, ok, warning, type Finding } from '../lib/finding.ts'
import {
  ALERT_COMMAND,
  unitCredentials,
  unitProperties,
  type HostFacts,
  type UnitProperties,
} from './systemd.ts'

/** A script must be read to be run. */
const RUN_BY_OTHERS = 0o005

/** The unit that runs a configuration. */
export interface Unit {
  readonly name: string
  readonly properties: UnitProperties
  /** Null where they are not known. */
  readonly credentials: readonly { readonly id: string; readonly path: string | undefined }[] | null
}

/** The socket units of an account, and whether its daemon runs. */
export interface UnitSockets {
  readonly sockets: readonly Omit<Unit, 'credentials'>[]
  readonly service: string
  readonly isActive: boolean
}

export async function findSockets({ unit, httpUnit }: UnitNames): Promise<UnitSockets> {
  const files = { [`${unit}.socket`]: 'ipc.sock', [`${httpUnit}.socket`]: 'http.sock' }
  const named = Object.entries(files).map(async ([name, file]) => {
    const properties = await unitProperties(name, ['ActiveState', 'Listen'])
    // Of a masked unit systemd reads nothing; its socket is where it is shipped.
    const { RUNTIME_DIRECTORY: directory = '' } = serviceEnvironment(unit.split('@')[1])
    const masked = properties?.['LoadState'] === 'masked' ? { Listen: join(directory, file) } : {}
    return properties === null ? [] : [{ name, properties: { ...properties, ...masked } }]
  })
  const service = `${unit}.service`
  const running = await unitProperties(service, ['ActiveState'])
  return {
    sockets: (await Promise.all(named)).flat(),
    service,
    isActive: running?.['ActiveState'] === 'active',
  }
}

/** Null where the unit is not installed, or no systemd runs here. */
export async function findUnit({ unit }: UnitNames): Promise<Unit | null> {
  const name = `${unit}.service`
  const properties = await unitProperties(name, [...ACCESS_PROPERTIES, 'ImportCredential'])
  if (properties?.['LoadState'] !== 'loaded') return null
  return { name, properties, credentials: await unitCredentials(name) }
}

/** A path of the configuration and the setting that names it. */
export interface NamedPath {
  readonly path: string
  readonly setting: string
}

/** Directories that the configuration writes to and the unit may not, and inputs that it may not read. */
export function accessFindings(
  config: Config,
  unit: Unit,
  written: readonly NamedPath[],
): { findings: Finding[]; barred: ReadonlySet<string>; dropIn: string[] } {
  const { name, properties } = unit
  const findings: Finding[] = []
  const barred = new Set<string>()
  const settings = new Set<string>()
  const report = (subject: string, because: string, needs: readonly string[]): void => {
    const remedy =
      needs.length > 0
        ? 'use the drop-in below, or set another path'
        : 'set a path elsewhere, such as below /srv'
    findings.push(fault(`${config.file}: ${subject} by ${name} (${because}): ${remedy}`))
    for (const need of needs) settings.add(need)
  }
  for (const { path, setting } of written) {
    const problem = writeProblem(properties, path)
    if (problem === undefined) continue
    barred.add(path)
    const verb = readProblem(properties, path) === undefined ? 'written' : 'seen'
    report(`${setting}: the directory ${path} cannot be ${verb}`, problem.because, problem.settings)
  }
  for (const path of config.inputs) {
    const problem = readProblem(properties, path)
    if (problem !== undefined) report(`the file ${path} cannot be read`, problem.because, problem.settings)
  }
  return { findings, barred, dropIn: dropInOf(unit, [...settings]) }
}

/** Commands that write the drop-in and have it take effect. */
function dropInOf({ name }: Unit, settings: readonly string[]): string[] {
  if (settings.length === 0) return []
  const directory = `/etc/systemd/system/${name}.d`
  return [
    `sudo install -d ${directory}`,
    `sudo tee -a ${directory}/token-files.conf <<'END'`,
    '[Service]',
    ...settings,
    'END',
    `sudo systemctl daemon-reload && sudo systemctl restart ${name.replace(/\.service$/, '')}`,
  ]
}

/** Drop-ins that keep the unit from starting when a directory goes, and credentials that are gone. For root. */
export function unitFindings(
  { name, properties, credentials }: Unit,
  { wanted, file, facts }: { wanted: readonly string[]; file: string; facts: Omit<HostFacts, 'unit'> },
): Finding[] {
  const needed = neededPaths(properties).map((path) =>
    existsSync(path)
      ? warning(
          `a drop-in of ${name} has ReadWritePaths=${path}: without that directory the daemon would not start; write ReadWritePaths=-${path}, then sudo systemctl daemon-reload`,
        )
      : fault(
          `a drop-in of ${name} has ReadWritePaths=${path}, which is not there, so that the daemon does not start (226/NAMESPACE): write ReadWritePaths=-${path}, then sudo systemctl daemon-reload`,
        ),
  )
  const loaded = credentials ?? []
  const gone = loaded
    .filter(({ path }) => path !== undefined && isAbsolute(path) && !existsSync(path))
    .map(({ id, path }) =>
      fault(
        `a drop-in of ${name} loads the credential ${id} from ${path}, which is not there, so that the daemon does not start (243/CREDENTIALS): make the file, or correct the drop-in and run sudo systemctl daemon-reload`,
      ),
    )
  const hidesAny = credentials === null || (properties['ImportCredential'] ?? '') !== ''
  const missing = wanted
    .filter((id) => !hidesAny && !loaded.some((one) => one.id === id))
    .map((id) =>
      fault(
        `${file}: ${name} loads no credential ${id}: add LoadCredential=${id}:/PATH to it (sudo systemctl edit ${name}), then sudo systemctl restart ${name}`,
      ),
    )
  return [...needed, ...gone, ...missing, ...alertCommandFindings(name, facts)]
}

/** The alert command is run by another user than root. */
function alertCommandFindings(
  service: string,
  { alertCommand, alertProblem }: Omit<HostFacts, 'unit'>,
): Finding[] {
  const mode = statSync(ALERT_COMMAND, { throwIfNoEntry: false })?.mode
  if (mode === undefined) return []
  const unit = service.replace('kyc-tokend', 'kyc-tokend-alert')
  return [
    ...((mode & RUN_BY_OTHERS) === RUN_BY_OTHERS
      ? []
      : [fault(`the alert command cannot be run by its unit: sudo chmod 755 ${ALERT_COMMAND}`)]),
    ...(alertProblem === null ? [] : [warning(alertProblem)]),
    ...(alertCommand === null || alertCommand.isOk
      ? []
      : [
          warning(
            `the alert command failed at its last run (${alertCommand.result}): see journalctl -u ${unit}`,
          ),
        ]),
  ]
}

/**
 * A socket that systemd listens at: looked at, not connected to, because a connection would start the daemon.
 * Undefined where no socket unit listens at this path.
 */
export function unitSocketFinding(
  { path, name }: { path: string; name: string },
  { sockets, service, isActive }: UnitSockets,
): Finding | undefined {
  const own = sockets.find(({ properties }) => (properties['Listen'] ?? '').split(' ').includes(path))
  if (own === undefined) return undefined
  const socket = `the ${name} socket ${path}`
  if (own.properties['LoadState'] === 'masked')
    return warning(`${socket} is closed, because ${own.name} is masked: sudo systemctl unmask ${own.name}`)
  const state = own.properties['ActiveState'] ?? 'unknown'
  if (state !== 'active')
    return warning(`${socket} is closed, because ${own.name} is ${state}: sudo systemctl start ${own.name}`)
  return ok(
    isActive
      ? `${socket} is served by ${service}, which runs`
      : `${socket} is open: ${own.name} listens, and the next client starts the daemon`,
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

/** The reason why the unit cannot write in this directory, whatever its mode; undefined where it can. */
export function writeProblem(unit: UnitProperties, directory: string): AccessProblem | undefined {
  const allow = `ReadWritePaths=-${directory}`
  const hidden = readProblem(unit, directory)
  if (hidden !== undefined)
    return { ...hidden, settings: hidden.settings.length > 0 ? [...hidden.settings, allow] : [] }
  const states = wordsOf(unit['StateDirectory']).map((name) => join('/var/lib', name.split(':')[0] ?? ''))
  const listed = wordsOf(unit['ReadWritePaths']).map((word) => word.replace(/^[-+]+/, ''))
  if (isBelowOne([...listed, ...states, ...ALWAYS_WRITABLE], directory)) return undefined
  if (unit['ProtectHome'] === 'read-only' && isBelowOne(HOMES, directory))
    return { because: 'ProtectHome=read-only', settings: [allow] }
  return unit['ProtectSystem'] === 'strict'
    ? { because: 'ProtectSystem=strict', settings: [allow] }
    : undefined
}

/** The reason why the unit cannot see this path, whatever its mode; undefined where it can. */
export function readProblem(unit: UnitProperties, path: string): AccessProblem | undefined {
  const { ProtectHome: homes = '', PrivateTmp: tmp = '' } = unit
  if (['yes', 'tmpfs'].includes(homes) && isBelowOne(HOMES, path))
    return { because: `ProtectHome=${homes}`, settings: ['ProtectHome=read-only'] }
  // It has directories of its own at these paths, which no other program sees.
  if (['yes', 'disconnected'].includes(tmp) && isBelowOne(PRIVATE_TMPS, path))
    return { because: `PrivateTmp=${tmp}`, settings: [] }
  return undefined
}

/** Paths of `ReadWritePaths=` that keep the unit from starting when they are gone. */
export function neededPaths(unit: UnitProperties): string[] {
  return wordsOf(unit['ReadWritePaths']).filter((path) => isAbsolute(path))
}

function wordsOf(list = ''): string[] {
  return list.split(/\s+/).filter((word) => word !== '')
}

function isBelowOne(parents: readonly string[], path: string): boolean {
  return parents.some((parent) => path === parent || path.startsWith(`${parent}/`))
}
