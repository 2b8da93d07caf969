// One fault has one remedy: the same text in log, status, check, answers and alert.json, with commands that
// reach the daemon that prints them.
import { chmodSync, mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { remedyOf } from '../support/remedies.ts'
import { permanentReasons, transientReasons, type Reason } from '../../src/protocol.ts'
import { alertFile, startDaemon, type Daemon } from '../support/daemon.ts'
import { httpAsk, serviceOf, statusOf } from '../support/outside.ts'
import { runCli, type Ended } from '../support/run-cli.ts'
import { accountInactive, accountNotFound, type Answer } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

/** What the service does for each reason; a text: the address to ask instead. */
const causes: Readonly<Record<Reason, Answer | string>> = {
  'account-inactive': accountInactive,
  'account-not-found': accountNotFound,
  rejected: { status: 403, json: {} },
  'rate-limited': { status: 429, json: {} },
  'server-error': { status: 503, json: {} },
  'malformed-answer': { status: 200, body: 'no JSON' },
  network: 'http://127.0.0.1:1',
  timeout: () => new Promise<void>(() => undefined),
  tls: 'https://127.0.0.1:',
  assertion: {},
}
/** The service wants an assertion from a file that is not there. */
const WITHOUT_ASSERTION = {
  credentials: { apiKey: null, apiSecret: null },
  service: {
    preset: 'oauth2',
    tokenUrl: '/token',
    send: 'assertion',
    assertion: { file: 'assertion.jwt' },
  },
}
const ALERTING = new Set<string>([...permanentReasons, 'rejected'])

async function daemonFor(config: object, answer: Answer | string): Promise<Daemon> {
  const { url } = await serviceOf(typeof answer === 'string' ? {} : answer)
  const baseUrl =
    typeof answer !== 'string' ? url : answer.endsWith(':') ? answer + new URL(url).port : answer
  const daemon = startDaemon({ directory: await tempDirectory(), baseUrl, config })
  await daemon.listening()
  return daemon
}

/** The command of the daemon in its own directory, with the words by which a person names it. */
function cli({ ipcPath, configFile }: Daemon, ...words: string[]): Promise<Ended> {
  const named = words[0] === 'check' ? ['--config', configFile] : ['--socket', ipcPath]
  return runCli([...words, ...named])
}

test.each([...permanentReasons, ...transientReasons])(
  'the remedy of %s is the same everywhere, and asks this very daemon',
  async (reason) => {
    const own = reason === 'assertion' ? WITHOUT_ASSERTION : {}
    const daemon = await daemonFor({ request: { timeout: '1s' }, ...own }, causes[reason])
    const isAlert = ALERTING.has(reason)
    const record = await daemon.logged(isAlert ? 'alert' : 'fetch-failed')
    expect(record['reason']).toBe(reason)
    const remedy = String(record['remedy'])
    const [text = ''] = remedyOf(reason).split(': `')
    expect(remedy.startsWith(text)).toBe(true)
    expect(remedy).not.toContain('systemctl')
    for (const [command] of remedy.slice(text.length).matchAll(/\S+ (?:refresh|status|check)[^&`]*/g))
      expect(command).toMatch(/ check /.test(command) ? daemon.configFile : `--socket ${daemon.ipcPath}`)
    if (isAlert) {
      expect((await expectUntil('alert.json', () => alertFile(daemon)))['remedy']).toBe(remedy)
      expect((await statusOf(daemon)).alert?.remedy).toBe(remedy)
    }
    expect((await cli(daemon, 'status')).stdout).toContain(remedy)
    expect((await httpAsk(daemon, '/v1/token')).json['detail']).toContain(remedy)
    const live = (await cli(daemon, 'check', '--live')).stdout
    expect(live).toContain(text)
    expect(live).not.toContain('systemctl')
  },
)

/** What is wrong with the directory `files` of the daemon, in which its token file is to be. */
const damages: Readonly<Record<string, (directory: string) => void>> = {
  'a directory that is not there': (directory) => rmSync(directory, { recursive: true }),
  'a directory that all may write': (directory) => chmodSync(directory, 0o777),
  'a directory in place of the file': (directory) => mkdirSync(join(directory, 'token')),
}

test.each(Object.entries(damages))('%s has one sentence in log, status and check', async (_, damage) => {
  const directory = await tempDirectory()
  mkdirSync(join(directory, 'files'), { mode: 0o755 })
  damage(join(directory, 'files'))
  const service = await serviceOf()
  const config = { tokenFiles: [{ path: join(directory, 'files', 'token') }] }
  const daemon = startDaemon({ directory, baseUrl: service.url, config })
  const { error } = await daemon.logged('file-error')
  const { files } = await statusOf(daemon)
  expect(files).toMatchObject([{ ok: false, error }])
  expect((await cli(daemon, 'status')).stdout).toContain(error)
  const why = String(error).replace(/^Cannot write \S+: /, '')
  const { stdout } = await cli(daemon, 'check')
  // `check` names a directory that is not there by its setting.
  expect(stdout).toContain(why.startsWith('the directory') ? why.split(' is not there')[0] : why)
})
