// No secret outside of where it belongs, also when the service echoes what it was sent in all it answers.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { credentials, type Daemon } from '../support/daemon.ts'
import { useDaemons } from '../support/daemon-world.ts'
import { askOnce } from '../support/ipc-client.ts'
import { command, httpAsk, statusOf, tokenOf } from '../support/outside.ts'
import type { Answer } from '../support/service.ts'
import { expectUntil } from '../support/until.ts'

/** Files of the runtime directory whose purpose it is to hold the token. */
const TOKEN_FILES = new Set(['token', 'state.json'])

const world = useDaemons()

/** Says it in every header and every field there is. */
function echoing(status: number, detail: (echo: string) => string, echo: string): Answer {
  const json = Object.fromEntries(
    ['type', 'title', 'instance', 'full-path', 'error', 'message', 'token', 'access_token', 'code'].map(
      (name) => [name, echo],
    ),
  )
  return ({ headers }, { response }) => {
    response.writeHead(status, `Status ${echo}`, {
      'content-type': `application/problem+json; echo="${echo}"`,
      'retry-after': echo,
      location: `https://elsewhere.test/?q=${echo}`,
      date: echo,
      'www-authenticate': `Bearer ${echo}`,
      'x-request-id': `${echo} ${headers['content-length'] ?? ''}`,
    })
    response.end(JSON.stringify({ ...json, status, detail: detail(echo), timestamp: 1 }))
  }
}

/** All that can be seen of the daemon, by where. */
async function seenOf(daemon: Daemon): Promise<Record<string, string>> {
  const ofProcess = (name: string): string => readFileSync(`/proc/${daemon.process.pid}/${name}`, 'utf8')
  const seen: Record<string, string> = { cmdline: ofProcess('cmdline') }
  if (process.getuid?.() === 0) seen['environ'] = ofProcess('environ')
  for (const type of ['status.get', 'refresh.request'])
    seen[type] = JSON.stringify(await askOnce(daemon.ipcPath, type, {}))
  for (const path of ['/v1/status', '/metrics', '/readyz', '/healthz'])
    seen[path] = (await httpAsk(daemon, path)).body
  for (const words of [['status'], ['status', '--json'], ['refresh'], ['token', '--wait', '0s']]) {
    const { stdout, stderr } = await command(daemon, ...words)
    seen[words.join(' ')] = words[0] === 'token' ? stderr : `${stdout}${stderr}`
  }
  for (const folder of ['run', 'state']) {
    for (const name of readdirSync(join(world.directory, folder))) {
      if (name.endsWith('.sock') || (folder === 'run' && TOKEN_FILES.has(name))) continue
      seen[`${folder}/${name}`] = readFileSync(join(world.directory, folder, name), 'utf8')
    }
  }
  return { ...seen, log: daemon.stderr() }
}

function expectNone(secrets: readonly string[], seen: Record<string, string>): void {
  for (const [where, text] of Object.entries(seen)) {
    for (const secret of secrets) expect(text, where).not.toContain(secret)
  }
}

test.each([
  ['an outage', 503, (echo: string) => `Bad day for ${echo}`, 'degraded'],
  ['a refusal', 500, (echo: string) => `Your account is not active: ${echo}`, 'refused'],
  ['a success that is none', 200, (echo: string) => echo, 'degraded'],
] as const)(
  '%s that echoes key, secret and token in every header and field',
  async (_, status, detail, state) => {
    const { service } = world
    const daemon = await world.started()
    const { accessToken } = await tokenOf(daemon)
    const secrets = [credentials.apiKey, credentials.apiSecret, accessToken]
    service.answer(echoing(status, detail, secrets.join(' ')))
    daemon.process.kill('SIGUSR2')
    await expectUntil('the answer to count', async () => (await statusOf(daemon)).state === state)
    const seen = await seenOf(daemon)
    if (state === 'refused') expect(seen['run/alert.json']).toContain('account-')
    // There is something to find.
    expect(seen['log']).toMatch(/fetch-failed|"alert"/)
    expectNone(secrets, seen)
    await daemon.end()
    expectNone(secrets, { log: daemon.stderr() })
  },
)

test('a token of the past is no more to be found than the current one', async () => {
  const { service } = world
  const daemon = await world.started()
  const first = await tokenOf(daemon)
  daemon.process.kill('SIGUSR2')
  const second = await expectUntil('another', async () => {
    const { accessToken } = await tokenOf(daemon)
    return accessToken !== first.accessToken && accessToken
  })
  service.answer(echoing(503, (echo) => echo, `${first.accessToken} ${second}`))
  daemon.process.kill('SIGUSR2')
  await daemon.logged('fetch-failed')
  expectNone([first.accessToken, second], await seenOf(daemon))
  const run = join(world.directory, 'run')
  for (const name of TOKEN_FILES)
    expect(readFileSync(join(run, name), 'utf8')).not.toContain(first.accessToken)
})
