// Unix users and groups by name and number, as /etc/passwd and /etc/group have them. The unit's sandbox runs no
// program that would ask a directory service: such a user is named by its number.
import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { fallbackOnSystemError, withSystemFallback } from '../lib/error.ts'

export type IdKind = 'user' | 'group'

const FILES = { user: '/etc/passwd', group: '/etc/group' } as const

/** The entries, as they were read last. */
const known: Partial<Record<IdKind, readonly string[][]>> = {}

/** The id of a name, a number or a number written as a string; undefined if there is no such user or group. */
export async function idOf(kind: IdKind, name: string | number): Promise<number | undefined> {
  if (typeof name === 'number') return name
  const id = (await readEntries(kind)).find((fields) => fields[0] === name)?.[2] ?? name
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

/** The fields of each line: name, password, id, and more. */
function entriesIn(text: string): string[][] {
  return text.split('\n').map((line) => line.split(':'))
}

/** The entries; none if the file does not exist or cannot be read. */
export async function readEntries(kind: IdKind): Promise<readonly string[][]> {
  known[kind] = entriesIn(await readFile(FILES[kind], 'utf8').catch(fallbackOnSystemError('')))
  return known[kind]
}

/** The same; a program that has not read them yet, which is not the daemon, waits for the disk. */
function entriesOf(kind: IdKind): readonly string[][] {
  known[kind] ??= entriesIn(withSystemFallback('', () => readFileSync(FILES[kind], 'utf8')))
  return known[kind]
}
