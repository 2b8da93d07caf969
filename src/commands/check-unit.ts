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
  type HostFacts,
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
  readonly credentials: readonly { readonly id: string; readonly path: string | undefined }[] | null
}

/** The socket units of an account, the paths at which they listen, and whether its daemon runs. */
export interface UnitSockets {
  readonly sockets: readonly { readonly name: string; readonly state: string; readonly paths: string[] }[]
  readonly service: string
  readonly isActive: boolean
}

export async function findSockets(account: string | undefined): Promise<UnitSockets> {
  const { unit, httpUnit } = unitNames(account)
  const { RUNTIME_DIRECTORY: directory } = serviceEnvironment(account)
  const files = { [`${unit}.socket`]: 'ipc.sock', [`${httpUnit}.socket`]: 'http.sock' }
  const named = Object.entries(files).map(async ([name, file]) => {
    const properties = await unitProperties(name, ['ActiveState', 'Listen'])
    if (properties === null) return []
    const { LoadState: load, ActiveState: active = 'unknown', Listen: listen = '' } = properties
    // Of a masked unit systemd reads nothing; its socket is where it is shipped.
    return load === 'masked'
      ? [{ name, state: load, paths: [join(directory, file)] }]
      : [{ name, state: active, paths: listen.split(' ') }]
  })
  const service = `${unit}.service`
  const running = await unitProperties(service, ['ActiveState'])
  return {
    sockets: (await Promise.all(named)).flat(),
    service,
    isActive: running?.['ActiveState'] === 'active',
  }
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
  config: Config,
  { name, properties }: Unit,
  written: readonly WrittenDirectory[],
): ReadonlyMap<string, Finding> {
  const findings = new Map<string, Finding>()
  const report = (path: string, subject: string, problem: AccessProblem | undefined): void => {
    if (problem === undefined) return
    const { because, settings } = problem
    const remedy =
      settings.length > 0
        ? `set another path, or allow this one: ${dropInCure(name, settings)}`
        : 'set a path elsewhere, such as below /srv'
    findings.set(path, fault(`${config.file}: ${subject} by ${name}.service (${because}): ${remedy}`))
  }
  for (const { path, setting } of written) {
    const verb = readProblem(properties, path) === undefined ? 'written' : 'seen'
    report(path, `${setting}: the directory ${path} cannot be ${verb}`, writeProblem(properties, path))
  }
  for (const path of config.inputs)
    report(path, `the file ${path} cannot be read`, readProblem(properties, path))
  return findings
}

/** Drop-ins that keep the unit from starting when a directory goes, and credentials that are gone. For root. */
export function unitFindings(
  { name, properties, credentials }: Unit,
  { wanted, file, facts }: { wanted: readonly string[]; file: string; facts: Omit<HostFacts, 'unit'> },
): Finding[] {
  const unit = `${name}.service`
  const findings: Finding[] = []
  for (const path of neededPaths(properties)) {
    const setting = `a drop-in of ${unit} has ReadWritePaths=${path}`
    const remedy = `write ReadWritePaths=-${path}, then sudo systemctl daemon-reload`
    findings.push(
      existsSync(path)
        ? warning(`${setting}: without that directory the daemon would not start; ${remedy}`)
        : fault(`${setting}, which does not exist, so the daemon does not start (226/NAMESPACE): ${remedy}`),
    )
  }
  const loaded = credentials ?? []
  for (const { id, path = '' } of loaded)
    if (isAbsolute(path) && !existsSync(path))
      findings.push(
        fault(
          `a drop-in of ${unit} loads the credential ${id} from ${path}, which does not exist, so the daemon does not start (243/CREDENTIALS): make the file, or correct the drop-in and run sudo systemctl daemon-reload`,
        ),
      )
  const hidesAny = credentials === null || (properties['ImportCredential'] ?? '') !== ''
  for (const id of wanted)
    if (!hidesAny && !loaded.some((one) => one.id === id))
      findings.push(
        fault(
          `${file}: ${unit} loads no credential ${id}: add LoadCredential=${id}:/PATH to it (sudo systemctl edit ${unit}), then sudo systemctl restart ${unit}`,
        ),
      )
  return [...findings, ...alertCommandFindings(name, facts)]
}

/** The alert command is run by another user than root. */
function alertCommandFindings(
  name: string,
  { alertCommand, alertProblem }: Omit<HostFacts, 'unit'>,
): Finding[] {
  const mode = statSync(ALERT_COMMAND, { throwIfNoEntry: false })?.mode
  if (mode === undefined) return []
  const findings: Finding[] = []
  if ((mode & RUN_BY_OTHERS) !== RUN_BY_OTHERS)
    findings.push(fault(`the alert command cannot be run by its unit: sudo chmod 755 ${ALERT_COMMAND}`))
  if (alertProblem !== null) findings.push(warning(alertProblem))
  if (alertCommand?.isOk === false) {
    const unit = name.replace('kyc-tokend', 'kyc-tokend-alert')
    const sentence = `the alert command failed at its last run (${alertCommand.result})`
    findings.push(warning(`${sentence}: see journalctl -u ${unit}`))
  }
  return findings
}

/**
 * A socket that systemd listens at: looked at, not connected to, because a connection would start the daemon.
 * Undefined if no socket unit listens at this path.
 */
export function unitSocketFinding(
  { path, name }: { path: string; name: string },
  { sockets, service, isActive }: UnitSockets,
): Finding | undefined {
  const own = sockets.find(({ paths }) => paths.includes(path))
  if (own === undefined) return undefined
  const socket = `the ${name} socket ${path}`
  if (own.state !== 'active') {
    const verb = own.state === 'masked' ? 'unmask' : 'start'
    return warning(
      `${socket} is closed, because ${own.name} is ${own.state}: sudo systemctl ${verb} ${own.name}`,
    )
  }
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

/** The reason why the unit cannot write in this directory, whatever its mode; undefined if it can. */
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
