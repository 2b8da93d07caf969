// The access of a unit to paths, as rules: may it write there, may it read there. Pure, of the properties that systemd shows.
import { isAbsolute } from 'node:path'

import type { UnitProperties } from './systemctl.ts'

/** Properties that the rules need. */
export const ACCESS_PROPERTIES = [
  'ProtectSystem',
  'ProtectHome',
  'PrivateTmp',
  'ReadWritePaths',
  'ReadOnlyPaths',
  'InaccessiblePaths',
  'StateDirectory',
  'CacheDirectory',
  'LogsDirectory',
  'RuntimeDirectory',
] as const

interface Obstacle {
  /** The settings of the unit that forbid it, such as `ProtectSystem=strict`. */
  readonly because: string
  /** Settings of a drop-in that allow it; none: only another directory helps. */
  readonly settings: readonly string[]
}

const HOMES = ['/home', '/root', '/run/user']
const PRIVATE_TMPS = ['/tmp', '/var/tmp']
const ALWAYS_WRITABLE = ['/dev', '/proc', '/sys']
const SYSTEM_PATHS: Readonly<Record<string, readonly string[]>> = {
  strict: ['/'],
  full: ['/usr', '/boot', '/efi', '/etc'],
  yes: ['/usr', '/boot', '/efi'],
}
const MANAGED: Readonly<Record<string, string>> = {
  StateDirectory: '/var/lib',
  CacheDirectory: '/var/cache',
  LogsDirectory: '/var/log',
  RuntimeDirectory: '/run',
}

/** The reason why the unit cannot write in this directory, whatever its mode; undefined where it can. */
export function writeObstacle(unit: UnitProperties, directory: string): Obstacle | undefined {
  const hidden = readObstacle(unit, directory)
  if (hidden !== undefined) {
    const settings = hidden.settings.length > 0 ? [...hidden.settings, `ReadWritePaths=-${directory}`] : []
    return { ...hidden, settings }
  }
  const home = unit['ProtectHome'] === 'read-only' ? HOMES : []
  const readOnly = [...pathsOf(unit['ReadOnlyPaths']), ...home, ...systemPaths(unit)]
  const barred = deepest(readOnly, directory)
  const allowed = deepest([...writablePaths(unit), ...ALWAYS_WRITABLE], directory)
  if (barred === undefined || (allowed !== undefined && allowed.length >= barred.length)) return undefined
  const because = pathsOf(unit['ReadOnlyPaths']).includes(barred)
    ? `ReadOnlyPaths=${barred}`
    : home.includes(barred)
      ? 'ProtectHome=read-only'
      : `ProtectSystem=${unit['ProtectSystem']}`
  return { because, settings: [`ReadWritePaths=-${directory}`] }
}

/** The reason why the unit cannot see this path, whatever its mode; undefined where it can. */
export function readObstacle(unit: UnitProperties, path: string): Obstacle | undefined {
  const inaccessible = deepest(pathsOf(unit['InaccessiblePaths']), path)
  if (inaccessible !== undefined) return { because: `InaccessiblePaths=${inaccessible}`, settings: [] }
  const hidesHomes = unit['ProtectHome'] === 'yes' || unit['ProtectHome'] === 'tmpfs'
  if (hidesHomes && deepest(HOMES, path) !== undefined)
    return { because: `ProtectHome=${unit['ProtectHome']}`, settings: ['ProtectHome=read-only'] }
  const isPrivate = unit['PrivateTmp'] === 'yes' || unit['PrivateTmp'] === 'disconnected'
  // It has directories of its own at these paths, which no other program sees.
  if (isPrivate && deepest(PRIVATE_TMPS, path) !== undefined)
    return { because: `PrivateTmp=${unit['PrivateTmp']}`, settings: [] }
  return undefined
}

/** Paths of `ReadWritePaths=` that keep the unit from starting when they are gone. */
export function neededPaths(unit: UnitProperties): string[] {
  return words(unit['ReadWritePaths']).filter((path) => isAbsolute(path))
}

function writablePaths(unit: UnitProperties): string[] {
  const managed = Object.entries(MANAGED).flatMap(([property, parent]) =>
    words(unit[property]).map((name) => `${parent}/${name.split(':')[0]}`),
  )
  return [...pathsOf(unit['ReadWritePaths']), ...managed]
}

function systemPaths(unit: UnitProperties): readonly string[] {
  return SYSTEM_PATHS[unit['ProtectSystem'] ?? ''] ?? []
}

/** Without the `-` and `+` that may go before them. */
function pathsOf(list: string | undefined): string[] {
  return words(list).map((word) => word.replace(/^[-+]+/, ''))
}

function words(list: string | undefined): string[] {
  return (list ?? '').split(/\s+/).filter((word) => word !== '')
}

function deepest(parents: readonly string[], path: string): string | undefined {
  return parents.filter((parent) => isBelow(parent, path)).toSorted((a, b) => b.length - a.length)[0]
}

function isBelow(parent: string, path: string): boolean {
  return path === parent || path.startsWith(parent === '/' ? '/' : `${parent}/`)
}
