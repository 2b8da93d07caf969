// Two daemons for one place: one lives, whoever comes first, and the service is asked by nobody else.
import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, expect, onTestFinished, test } from 'vitest'
import { configOf, PROGRAM, startDaemon } from '../support/daemon.ts'
import { askOnce } from '../support/ipc-client.ts'
import { httpAsk, serviceOf, tokenOf } from '../support/outside.ts'
import type { Service } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

let directory: string
let service: Service

beforeEach(async () => {
  directory = await tempDirectory()
  service = await serviceOf()
})

test('of two that are started at once one lives, ten times over', async () => {
  for (let round = 1; round <= 10; round += 1) {
    const place = join(directory, String(round))
    const both = [0, 1].map(() => startDaemon({ directory: place, baseUrl: service.url }))
    const status = await Promise.race(both.map((daemon) => daemon.ended()))
    expect(status).toBe(69)
    const [loser, winner] = both.toSorted((one) => (one.process.exitCode === null ? 1 : -1))
    if (loser === undefined || winner === undefined) throw new Error('There are two')
    expect(loser.stderr().trim().split('\n')).toHaveLength(1)
    await winner.listening()
    expect((await tokenOf(winner)).state).toBe('ready')
    expect(await askOnce(winner.ipcPath, 'status.get', {})).toMatchObject({
      data: { daemon: { pid: winner.process.pid } },
    })
    expect(service.requests).toHaveLength(round)
    expect(await winner.end()).toBe(0)
  }
})

interface Launched {
  readonly ipcPath: string
  readonly httpPath: string
  stderr(): string
  /** The exit statuses of those that have ended. */
  ended(): number[]
  /** Ends all with SIGTERM. */
  stop(): void
}

/** So many daemons at once, with sockets that were made for them. */
function launch(count: number, config: string): Launched {
  const file = join(directory, 'kyc-tokend.config.json')
  writeFileSync(file, config, { mode: 0o600 })
  const [ipcPath, httpPath] = [join(directory, 'given-ipc.sock'), join(directory, 'given-http.sock')]
  const script = new URL('../support/launch-with-sockets.py', import.meta.url).pathname
  const words = [script, ipcPath, httpPath, String(count), ...PROGRAM, 'run', '--config', file]
  const launcher = spawn('python3', words, { stdio: ['ignore', 'pipe', 'pipe'] })
  onTestFinished(() => void launcher.kill('SIGTERM'))
  let stdout = ''
  let stderr = ''
  launcher.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
  launcher.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
  return {
    ipcPath,
    httpPath,
    stderr: () => stderr,
    ended: () => [...stdout.matchAll(/^\d+ (-?\d+)\n/gm)].map(([, status]) => Number(status)),
    stop: () => void launcher.kill('SIGTERM'),
  }
}

test('of two that inherit the same sockets one lives', async () => {
  for (let round = 1; round <= 3; round += 1) {
    directory = await tempDirectory()
    const launched = launch(2, JSON.stringify(configOf({ directory, baseUrl: service.url })))
    await expectUntil('one to end', () => launched.ended().length === 1)
    expect(launched.ended()).toEqual([69])
    expect((await tokenOf(launched)).state).toBe('ready')
    expect(await askOnce(launched.ipcPath, 'token.get', {})).toMatchObject({ type: 'token.result' })
    expect(service.requests).toHaveLength(round)
    launched.stop()
    await expectUntil('the other to end', () => launched.ended().length === 2)
    expect(launched.ended()).toEqual([69, 0])
  }
})

test('with inherited sockets a faulty configuration is told to those who wait, for 2 s, and ends with 78', async () => {
  const launched = launch(1, JSON.stringify({ baseUrl: 'http://elsewhere.example', retries: 3 }))
  const begunMs = performance.now()
  await expectUntil('the answer', async () => {
    const answer = await askOnce(launched.ipcPath, 'token.get', { waitSeconds: 10 }).catch(() => undefined)
    return answer?.type === 'fault' && answer.data['code'] === 'misconfigured'
  })
  expect(await httpAsk(launched, '/v1/token')).toMatchObject({ status: 503, json: { code: 'misconfigured' } })
  expect((await httpAsk(launched, '/readyz')).status).toBe(503)
  expect(launched.ended()).toEqual([])
  await expectUntil('the end', () => launched.ended().length === 1)
  expect(launched.ended()).toEqual([78])
  expect(performance.now() - begunMs).toBeGreaterThan(1_900)
  expect(launched.stderr()).toContain('retries')
  expect(launched.stderr()).toContain('baseUrl')
  expect(service.requests).toHaveLength(0)
})
