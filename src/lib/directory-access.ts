// Reports who else can write in a directory: the one rule for all that is created, changed or trusted in one.
import type { Stats } from 'node:fs'
import type { AccessList } from './access-list.ts'

/** Of the directory itself: opened without following a link, or lstat. */
export type DirectoryStats = Pick<Stats, 'mode' | 'uid'>

/**
 * Who beside this user can exchange what is in a directory. Its access list, if it has one, says which users
 * and groups may write there: the group's bits of the mode are the list's mask.
 */
export function directoryAccess(
  { mode, uid: owner }: DirectoryStats,
  uid: number,
  list: AccessList | null = null,
) {
  const mayOthers = (mode & 0o002) !== 0
  const mayGroup = list === null ? (mode & 0o020) !== 0 : foreignWriters(list, uid).length > 0
  const others = mayOthers ? 'all' : 'group'
  return {
    /** Root, or this user: any other owner can exchange all that is in it. */
    isOwnerTrusted: owner === 0 || owner === uid,
    /** Who can make names in it. In a `sticky` one nobody can exchange what others made. */
    writers: !mayOthers && !mayGroup ? 'owner' : (mode & 0o1000) === 0 ? others : 'sticky',
  } as const
}

/** Entries of an access list by which others than root, this user and all users together may write. */
export function foreignWriters(list: AccessList, uid: number): AccessList {
  return list.filter(({ kind, id, access }) => {
    if ((access & 0o2) === 0 || kind === 'owner' || kind === 'others') return false
    return kind !== 'user' || (id !== 0 && id !== uid)
  })
}

/**
 * Reports whether the sticky bit keeps this user from removing or replacing the file: only root, the owner of
 * the file and that of the directory may (inode(7)).
 */
export function isHeldBySticky(
  file: Pick<Stats, 'uid'>,
  directory: DirectoryStats,
  uid = process.geteuid!(),
): boolean {
  return (directory.mode & 0o1000) !== 0 && ![0, file.uid, directory.uid].includes(uid)
}
