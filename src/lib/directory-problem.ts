// Reports whether other users could exchange the files that the daemon creates in a directory.
import type { Stats } from 'node:fs'

const OTHERS_WRITE = 0o002
const GROUP_WRITES = 0o020
const STICKY = 0o1000

type DirectoryStats = Pick<Stats, 'mode' | 'uid'>

/**
 * Why this directory is refused, with the remedy; undefined where it is not. `stats` are those of the directory itself,
 * opened without following a link. Its owner could exchange everything in it: for root that owner must be root.
 */
export function directoryProblem(directory: string, stats: DirectoryStats, uid: number): string | undefined {
  if (uid === 0 && stats.uid !== 0) {
    return `the directory belongs to the user ${stats.uid}, who could exchange what root writes there: chown root ${directory}, or choose another directory`
  }
  if ((stats.mode & OTHERS_WRITE) !== 0 && (stats.mode & STICKY) === 0) {
    return `every user can write in the directory: chmod o-w ${directory} (an emptyDir of Kubernetes: medium: Memory), or choose another directory`
  }
  return undefined
}

/** Something unwise about it, with the remedy; undefined where nothing is. */
export function directoryWarning(directory: string, { mode }: DirectoryStats): string | undefined {
  if ((mode & GROUP_WRITES) === 0 || (mode & STICKY) !== 0) return undefined
  return `the group of ${directory} can exchange what kyc-tokend writes there: chmod g-w ${directory}, unless all its members may`
}
