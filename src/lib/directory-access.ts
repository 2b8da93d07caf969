// Reports who else can write in a directory: the one rule for all that is created, changed or trusted in one.
import type { Stats } from 'node:fs'

/** Of the directory itself: opened without following a link, or lstat. */
export type DirectoryStats = Pick<Stats, 'mode' | 'uid'>

/** Who beside this user can exchange what is in a directory. */
export function directoryAccess({ mode, uid: owner }: DirectoryStats, uid: number) {
  const others = (mode & 0o002) === 0 ? 'group' : 'all'
  return {
    /** Root, or this user: any other owner can exchange all that is in it. */
    isOwnerTrusted: owner === 0 || owner === uid,
    /** Who can make names in it. In a `sticky` one nobody can exchange what others made. */
    writers: (mode & 0o022) === 0 ? 'owner' : (mode & 0o1000) === 0 ? others : 'sticky',
  } as const
}
