// Reports who else can write in a directory: the one rule for all that kyc-tokend creates, changes or
// trusts in one.
import type { Stats } from 'node:fs'
import { isSystemDirectory } from './paths.ts'
import { nameOf } from './posix-ids.ts'
import { remedy, rendered, shellWord } from './remedy.ts'

/**
 * The access of others as this user must see it.
 *
 * | owner          | mode                         | isOwnerTrusted | writers  |
 * | -------------- | ---------------------------- | -------------- | -------- |
 * | root, the user | neither group nor others `w` | true           | `owner`  |
 * | root, the user | sticky, group or others `w`  | true           | `sticky` |
 * | root, the user | group `w`                    | true           | `group`  |
 * | root, the user | others `w`                   | true           | `all`    |
 * | another        | as above                     | false          | as above |
 */
export function directoryAccess({ mode, uid: owner }: DirectoryStats, uid: number) {
  const isWritable = (mode & 0o022) !== 0
  const isSticky = (mode & 0o1000) !== 0
  const others = (mode & 0o002) === 0 ? 'group' : 'all'
  return {
    /** Any other owner than root and the user can exchange all that is in the directory. */
    isOwnerTrusted: owner === 0 || owner === uid,
    /**
     * Users beside the owner who can make names in it; those of `sticky` cannot exchange what others made.
     */
    writers: isWritable ? (isSticky ? 'sticky' : others) : 'owner',
  } as const
}

/** Of the directory itself: opened without following a link, or lstat. */
type DirectoryStats = Pick<Stats, 'mode' | 'uid'>

/**
 * Why this user must not use the directory, with the remedy; undefined if it may.
 *
 * - `sockets`: the listener (78), the instance lock and the daemon's own directories (78 for the runtime
 *   directory; the daemon does without a state directory).
 * - `files`: token files and all others that the daemon writes (`files[].ok: false`). A daemon that is not
 *   root may write into another user's directory; root must not, because that user could exchange what root
 *   creates and gives away.
 *
 * A client, which writes nothing, asks `directoryAccess` about the directory of a socket and the one above
 * it.
 */
export function directoryProblem(
  directory: string,
  stats: DirectoryStats,
  { uid, use }: { uid: number; use: 'files' | 'sockets' },
): string | undefined {
  const { isOwnerTrusted, writers } = directoryAccess(stats, uid)
  if (!isOwnerTrusted && (use === 'sockets' || uid === 0)) {
    const owner = nameOf('user', stats.uid)
    // Of a user who is gone nothing is taken away.
    const isGone = owner === String(stats.uid) && !isSystemDirectory(directory)
    const why = `the directory belongs to the user ${owner}, who could exchange what is made there`
    if (!isGone) return `${why}; choose another directory`
    const mine = `sudo chown ${nameOf('user', uid)} ${shellWord(directory)}`
    return rendered(remedy(`${why}; choose another directory, or take this one over`, mine))
  }
  if (writers === 'all') {
    const close = 'or close this one (an emptyDir of Kubernetes: medium: Memory)'
    const commands = isSystemDirectory(directory) ? [] : [`sudo chmod o-w ${shellWord(directory)}`]
    const text = `every user can write in the directory; choose another directory, ${close}`
    return rendered(remedy(text, ...commands))
  }
  return undefined
}

/** A risk of using the directory, with the remedy; undefined: there is none. */
export function directoryWarning(
  directory: string,
  stats: DirectoryStats & Pick<Stats, 'gid'>,
  uid: number,
): string | undefined {
  if (directoryAccess(stats, uid).writers !== 'group') return undefined
  const group = nameOf('group', stats.gid)
  const risk = `the group ${group} can exchange what kyc-tokend writes in ${directory}`
  return rendered(remedy(`${risk}; unless all its members may`, `sudo chmod g-w ${shellWord(directory)}`))
}
