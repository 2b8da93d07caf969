// Numeric ids of user and group names: /etc/passwd and /etc/group first, then the name service of the host.
import { readFileSync } from 'node:fs'

import { errorCode } from '../lib/error.ts'
import { runProgram } from '../lib/run-program.ts'

export type AccountKind = 'user' | 'group'

const DATABASES = { user: 'passwd', group: 'group' } as const
/** A directory service that does not answer must not keep the daemon from starting or reloading. */
const ASK_MS = 3_000

/** The id of a name, a number or a number written as a string; undefined where there is no such account. */
export async function idOf(kind: AccountKind, account: string | number): Promise<number | undefined> {
  if (typeof account === 'number') return account
  const known = idIn(readAccounts(kind), account)
  if (known !== undefined) return known
  if (/^\d{1,10}$/.test(account)) return Number(account) < 2 ** 32 - 1 ? Number(account) : undefined
  // Empty where the name is unknown there too, where no answer comes in time, or where no program may be run.
  const { stdout } = await runProgram('getent', [DATABASES[kind], '--', account], ASK_MS)
  return idIn(stdout, account)
}

/** Groups that name the user as a member, beside its own. */
export function groupsOf(user: string): number[] {
  return fieldsOf(readAccounts('group'))
    .filter((fields) => fields[3]?.split(',').includes(user))
    .map((fields) => Number(fields[2]))
}

/** User and group id of a user of /etc/passwd. */
export function localUser(name: string): { uid: number; gid: number } | undefined {
  const fields = fieldsOf(readAccounts('user')).find((line) => line[0] === name)
  return fields === undefined ? undefined : { uid: Number(fields[2]), gid: Number(fields[3]) }
}

function idIn(accounts: string, name: string): number | undefined {
  const id = fieldsOf(accounts).find((fields) => fields[0] === name)?.[2]
  return id !== undefined && /^\d+$/.test(id) ? Number(id) : undefined
}

/** Of each line: name, password, id, and more. */
function fieldsOf(accounts: string): string[][] {
  return accounts.split('\n').map((line) => line.split(':'))
}

function readAccounts(kind: AccountKind): string {
  try {
    return readFileSync(`/etc/${DATABASES[kind]}`, 'utf8')
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return ''
    throw error
  }
}
