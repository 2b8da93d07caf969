// What others can do in a directory, as a sentence with its remedy.
import type { Stats } from 'node:fs'
import { isSystemDirectory } from './paths.ts'
import { nameOf } from './ids.ts'
import { directoryAccess, type DirectoryStats } from '../lib/directory-access.ts'
import { shellWord } from '../lib/display-text.ts'
import { remedy, rendered } from './remedy.ts'

/**
 * Why this user must not use the directory, with the remedy; undefined if it may. For `sockets`, and the lock
 * beside them, its owner must be trusted. For `files`, which the daemon writes, that holds for root alone:
 * another owner could exchange what root creates and gives away.
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
