// Unix users and groups by name and number: /etc/passwd and /etc/group, then the host's name service.
import { readFileSync } from 'node:fs'
import { fallbackOnSystemError, withSystemFallback } from '../lib/error.ts'
import { fs } from '../files/fs.ts'
import { runProgram } from '../lib/run-program.ts'

export type IdKind = 'user' | 'group'

const DATABASES = { user: 'passwd', group: 'group' } as const
/** A directory service that does not answer must not keep the daemon from starting or reloading. */
const ASK_MS = 3_000

/** The local entries, as they were read last. */
const known: Partial<Record<IdKind, readonly string[][]>> = {}

/**
 * The id of a name, a number or a number written as a string; undefined if there is no such user or group.
 */
export async function idOf(kind: IdKind, name: string | number): Promise<number | undefined> {
  if (typeof name === 'number') return name
  const id = idIn(await readEntries(kind), name)
  if (id !== undefined) return id
  if (/^\d{1,10}$/.test(name)) return Number(name) < 2 ** 32 - 1 ? Number(name) : undefined
  // The output is empty if the name is unknown there, too, or no answer comes in time.
  const { stdout } = await runProgram('getent', [DATABASES[kind], '--', name], ASK_MS)
  return idIn(entriesIn(stdout), name)
}

/** The name of a local user or group, for remedies; else the number itself. */
export function nameOf(kind: IdKind, id: number): string {
  return entriesOf(kind).find((fields) => fields[2] === String(id))?.[0] ?? String(id)
}

/** Groups that name the user as a member, beside its own. */
export function groupsOf(user: string): number[] {
  return entriesOf('group')
    .filter((fields) => fields[3]?.split(',').includes(user))
    .map((fields) => Number(fields[2]))
}

/** User and group id of a user of /etc/passwd. */
export function localUser(name: string): { uid: number; gid: number } | undefined {
  const fields = entriesOf('user').find((entry) => entry[0] === name)
  return fields === undefined ? undefined : { uid: Number(fields[2]), gid: Number(fields[3]) }
}

function idIn(entries: readonly string[][], name: string): number | undefined {
  const id = entries.find((fields) => fields[0] === name)?.[2]
  return id !== undefined && /^\d+$/.test(id) ? Number(id) : undefined
}

/** The fields of each line: name, password, id, and more. */
function entriesIn(text: string): string[][] {
  return text.split('\n').map((line) => line.split(':'))
}

/** The local entries; none if the file does not exist or cannot be read. */
export async function readEntries(kind: IdKind): Promise<readonly string[][]> {
  const text = await fs.readFile(fileOf(kind), 'utf8').catch(fallbackOnSystemError(''))
  known[kind] = entriesIn(text)
  return known[kind]
}

/** The same; a program that has not read them yet, which is not the daemon, waits for the disk. */
function entriesOf(kind: IdKind): readonly string[][] {
  known[kind] ??= entriesIn(withSystemFallback('', () => readFileSync(fileOf(kind), 'utf8')))
  return known[kind]
}

function fileOf(kind: IdKind): string {
  return `/etc/${DATABASES[kind]}`
}
