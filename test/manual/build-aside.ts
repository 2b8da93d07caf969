// Builds the project in a directory of its own, so that dist/ of the checkout stays as it is.
import { spawnSync } from 'node:child_process'
import { cpSync, readdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'

const project = new URL('../..', import.meta.url).pathname

/** Copies the project, and returns a function that runs a shell script there, returns its output and throws if it fails. */
export function copyProject(target: string): (script: string) => string {
  for (const name of ['src', 'node_modules']) symlinkSync(join(project, name), join(target, name))
  cpSync(join(project, 'systemd'), join(target, 'systemd'), { recursive: true })
  for (const { name } of readdirSync(project, { withFileTypes: true }).filter((entry) => entry.isFile()))
    cpSync(join(project, name), join(target, name))
  return (script) => {
    const { status, stdout, stderr } = spawnSync('sh', ['-euc', script], { cwd: target, encoding: 'utf8' })
    if (status !== 0) throw new Error(`${script} ended with ${String(status)}: ${stderr}`)
    return stdout
  }
}
