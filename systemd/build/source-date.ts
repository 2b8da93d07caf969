// The date of all that is built is that of the sources: the same sources give the same bytes.
import { execFileSync } from 'node:child_process'
import { lstatSync } from 'node:fs'
import path from 'node:path'

/** SOURCE_DATE_EPOCH, or the date of the last commit; without git that of package.json. */
export function sourceDate(project: string): Date {
  return new Date(Number(process.env['SOURCE_DATE_EPOCH'] ?? lastCommitSeconds(project)) * 1000)
}

function lastCommitSeconds(project: string): number {
  try {
    return Number(execFileSync('git', ['log', '-1', '--format=%ct'], { cwd: project, encoding: 'utf8' }))
  } catch {
    return Math.floor(lstatSync(path.join(project, 'package.json')).mtimeMs / 1000)
  }
}
