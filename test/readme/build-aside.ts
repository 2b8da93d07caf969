// The project built in a directory of its own, so that nobody's dist/ changes under them.
import { spawnSync } from 'node:child_process'
import { cpSync, readdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'

const project = new URL('../..', import.meta.url).pathname

/** A copy of the project, in which a shell can run its scripts. Gives what the script prints; throws where it fails. */
export function copyProject(place: string): (script: string) => string {
  for (const name of ['src', 'node_modules']) symlinkSync(join(project, name), join(place, name))
  cpSync(join(project, 'systemd'), join(place, 'systemd'), { recursive: true })
  for (const { name } of readdirSync(project, { withFileTypes: true }).filter((entry) => entry.isFile()))
    cpSync(join(project, name), join(place, name))
  return (script) => {
    const { status, stdout, stderr } = spawnSync('sh', ['-euc', script], { cwd: place, encoding: 'utf8' })
    if (status !== 0) throw new Error(`${script} ended with ${String(status)}: ${stderr}`)
    return stdout
  }
}
