// Unix users and groups by name and number, as /etc/passwd and /etc/group have them. The unit's sandbox runs no
// program that would ask a directory service: such a user is named by its number.
import { readFileSync } from 'node:fs'
import { withSystemFallback } from '../lib/error.ts'

export type IdKind = 'user' | 'group'

const FILES = { user: '/etc/passwd', group: '/etc/group' } as const

/** The fields of each line (name, password, id, and more), as they were read last. */
const known: Partial<Record<IdKind, readonly string[][]>> = {}

/** The entries of the file as it is; none if it does not exist or cannot be read. */
function readEntries(kind: IdKind): readonly string[][] {
  const text = withSystemFallback('', () => readFileSync(FILES[kind], 'utf8'))
  return (known[kind] = text.split('\n').map((line) => line.split(':')))
}

/** The same, as they were read last: a status of many readers reads nothing. */
const entriesOf = (kind: IdKind): readonly string[][] => known[kind] ?? readEntries(kind)

/** The id of a name, a number or a number written as a string; undefined if there is no such user or group. */
export function idOf(kind: IdKind, name: string | number): number | undefined {
  const id = readEntries(kind).find((fields) => fields[0] === name)?.[2] ?? String(name)
  return /^\d{1,10}$/.test(id) && Number(id) < 2 ** 32 - 1 ? Number(id) : undefined
}

/** The name of a user or group, for remedies; else the number itself. */
export function nameOf(kind: IdKind, id: number): string {
  return entriesOf(kind).find((fields) => fields[2] === String(id))?.[0] ?? String(id)
}

/** Groups that name the user as a member, beside its own. */
export function groupsOf(user: string): number[] {
  return entriesOf('group')
    .filter((fields) => fields[3]?.split(',').includes(user))
    .map((fields) => Number(fields[2]))
}

/** User and group id of a user. */
export function localUser(name: string): { uid: number; gid: number } | undefined {
  const fields = entriesOf('user').find((entry) => entry[0] === name)
  return fields === undefined ? undefined : { uid: Number(fields[2]), gid: Number(fields[3]) }
}
