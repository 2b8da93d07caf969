// The drop-ins of a unit: the line that keeps the daemon from its work is named with its file, because any other
// remedy would only hide it.
import { readFileSync } from 'node:fs'
import { withSystemFallback } from '../lib/error.ts'
import { fault, type Finding } from '../host/finding.ts'
import {
  SERVICE_USER,
  SYSTEM_CONFIG_DIRECTORY,
  SYSTEM_RUNTIME_DIRECTORY,
  SYSTEM_STATE_DIRECTORY,
} from '../host/paths.ts'

/** A setting of a drop-in. */
interface Line {
  readonly file: string
  readonly name: string
  readonly value: string
  /** As it is written. */
  readonly text: string
}

/** Descriptors for sockets, files and the service, with a few clients. */
const LEAST_DESCRIPTORS = 256
/** What the unit's own settings give the daemon. */
const UNIT_DIRECTORIES = [SYSTEM_RUNTIME_DIRECTORY, SYSTEM_STATE_DIRECTORY]

/** The settings of these drop-ins, in the order in which systemd reads them. `paths`: DropInPaths of systemctl. */
export function settingsIn(paths = ''): Line[] {
  return paths
    .split(' ')
    .filter((file) => file !== '')
    .flatMap((file) => {
      const text = withSystemFallback('', () => readFileSync(file, 'utf8'))
      return text.split('\n').flatMap((line) => {
        const [, name, value] = /^\s*([A-Z]\w+)\s*=\s*(.*?)\s*$/.exec(line) ?? []
        return name === undefined || value === undefined
          ? []
          : [{ file, name, value, text: `${name}=${value}` }]
      })
    })
}

/** The last line with this setting (`NAME=`), or with this very value (`NAME=VALUE`). */
export function lineOf(lines: readonly Line[], setting: string): Line | undefined {
  return lines.findLast(({ text, name }) => text === setting || `${name}=` === setting)
}

/** What a setting of the service's drop-ins breaks, by its name; undefined: nothing. */
const EFFECTS: Readonly<Record<string, (value: string) => string | undefined>> = {
  User: (value) =>
    value === SERVICE_USER ? undefined : `the daemon must run as ${SERVICE_USER}, to which its files belong`,
  // Without a name it is the group of the user.
  Group: (value) =>
    value === SERVICE_USER || value === '' ? undefined : `the daemon must run in the group ${SERVICE_USER}`,
  DynamicUser: (value) => (isYes(value) ? `the daemon must run as ${SERVICE_USER}` : undefined),
  RuntimeDirectory: (value) =>
    value === '' ? undefined : 'systemd then takes the runtime directory from its clients at each start',
  ReadOnlyPaths: (value) => coversNeeded(value, UNIT_DIRECTORIES, 'the daemon cannot write in'),
  InaccessiblePaths: (value) =>
    coversNeeded(value, [SYSTEM_CONFIG_DIRECTORY, ...UNIT_DIRECTORIES], 'the daemon does not see'),
  PrivateNetwork: (value) => (isYes(value) ? 'the daemon cannot reach the service' : undefined),
  LimitNOFILE: (value) =>
    Number(value.split(':')[0]) < LEAST_DESCRIPTORS
      ? `the daemon needs ${LEAST_DESCRIPTORS} descriptors at least, and 16384 for many clients`
      : undefined,
}

/** systemd does not read an empty value of these. */
const IGNORED_IF_EMPTY = new Set(['DynamicUser', 'PrivateNetwork', 'LimitNOFILE'])

/** Faults that drop-ins of the service cause. */
export function dropInFindings(lines: readonly Line[]): Finding[] {
  const read = lines.filter(({ name, value }) => value !== '' || !IGNORED_IF_EMPTY.has(name))
  // A later line overrides an earlier one; lists grow, until an empty line ends what they had.
  const inForce = read.filter(({ name }, index) => {
    const later = read.slice(index + 1).filter((line) => line.name === name)
    return name.endsWith('Paths') ? later.every(({ value }) => value !== '') : later.length === 0
  })
  return inForce.flatMap(({ file, name, value, text }) => {
    const effect = EFFECTS[name]?.(value)
    return effect === undefined ? [] : [lineFault({ file, text }, effect)]
  })
}

/** The fault that is this line, and no other remedy. `before`: what may be done instead, with `or`. */
export function lineFault({ file, text }: Pick<Line, 'file' | 'text'>, effect: string, before = ''): Finding {
  const then = 'take that line out, then run `sudo systemctl daemon-reload`, and this check again'
  return fault(`${file} has ${text}: ${effect}; ${before}${then}`)
}

function isYes(value: string): boolean {
  return ['yes', 'y', 'true', 't', 'on', '1'].includes(value.toLowerCase())
}

function coversNeeded(value: string, needed: readonly string[], effect: string): string | undefined {
  const covered = value
    .split(/\s+/)
    .map((path) => path.replace(/^[-+]+/, ''))
    .filter(
      (path) =>
        path !== '' && needed.some((directory) => `${directory}/`.startsWith(`${path.replace(/\/$/, '')}/`)),
    )
  return covered.length === 0 ? undefined : `${effect} ${covered.join(' and ')}`
}
