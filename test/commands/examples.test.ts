// The examples with which the help of each command ends, run as they are written; those of `setup` are run on
// a machine with systemd (install.system.test.ts).
import { spawn } from 'node:child_process'
import { expect, onTestFinished, test } from 'vitest'
import { commands } from '../../src/commands/specs.ts'
import { startExample } from '../manual/example.ts'

/** What ends with another status than 0 here: a daemon runs already. */
const STATUSES: Readonly<Record<string, number>> = { run: 69 }
/** Commands that run until they are stopped, once they have printed something. */
const LONG = /\b(?:watch|sandbox|demo)\b/

const all = commands.flatMap(({ name, examples }) => examples.map((line) => [line, name] as const))

test.each(all.filter(([, name]) => name !== 'setup'))('%s', { timeout: 30_000 }, async (line, name) => {
  const example = await startExample({ tokenFiles: [{ path: 'token' }] })
  const { daemon, env, program } = example
  program('sudo', 'exec "$@"')
  program('billing', 'echo "${KYC_ACCESS_TOKEN:-$API_TOKEN}"; [ $# = 0 ] || exec sleep 60')
  const child = spawn('sh', ['-c', `exec ${line.replace('8099', '0')}`], {
    cwd: daemon.directory,
    env: { ...env, KYC_TOKEND_CONFIG: daemon.configFile },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      said += chunk.toString()
      if (LONG.test(line)) child.kill('SIGTERM')
    })
  const status = await new Promise((resolve) => {
    child.on('close', (code, signal) => resolve(code ?? signal))
  })
  expect(said).not.toMatch(/kyc-tokend (?:\S+ )?--help/)
  expect(said).not.toBe('')
  if (LONG.test(line)) expect([0, 143, 'SIGTERM'], said).toContain(status)
  else expect(status, said).toBe(STATUSES[name] ?? 0)
})
