// A reload of a real daemon reaches the log and systemd.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, expect, onTestFinished, test } from 'vitest'
import { configOf, startDaemon } from '../support/daemon.ts'
import { lacks } from '../support/lacks.ts'
import { serviceOf, tokenOf } from '../support/outside.ts'
import { receiveDatagrams } from '../support/receive-datagrams.ts'
import type { Service } from '../support/service.ts'
import { tempDirectory } from '../support/temp-directory.ts'

let service: Service
let directory: string

beforeEach(async () => {
  directory = await tempDirectory()
  service = await serviceOf()
})

test.skipIf(lacks('python3'))(
  'systemd is notified of its begin and of its end, also where the configuration is faulty',
  async () => {
    const notifySocket = join(directory, 'notify')
    const receiver = await receiveDatagrams(notifySocket)
    onTestFinished(() => receiver.stop())
    /** The first lines of all that comes, until the daemon is ready. */
    const untilReady = async (): Promise<string[]> => {
      const lines: string[] = []
      while (lines.at(-1) !== 'READY=1') lines.push((await receiver.next()).split('\n')[0] ?? '')
      return lines.filter((line) => !line.startsWith('STATUS='))
    }
    const daemon = startDaemon({ directory, baseUrl: service.url, env: { NOTIFY_SOCKET: notifySocket } })
    expect(await untilReady()).toEqual(['READY=1'])
    for (const text of ['{ "baseUrl": ', JSON.stringify(configOf({ directory, baseUrl: service.url }))]) {
      writeFileSync(daemon.configFile, text)
      daemon.process.kill('SIGHUP')
      expect(await untilReady()).toEqual(['RELOADING=1', 'READY=1'])
    }
  },
)

test('the log has its new level from then on', async () => {
  const daemon = startDaemon({
    directory,
    baseUrl: service.url,
    config: { log: { level: 'info', format: 'json' } },
  })
  await daemon.listening()
  await tokenOf(daemon)
  await daemon.logged('token-taken')
  expect(daemon.log().filter(({ level }) => level === 'debug')).toEqual([])
  daemon.configure(configOf({ directory, baseUrl: service.url }))
  daemon.process.kill('SIGHUP')
  await daemon.logged('reloaded')
  await tokenOf(daemon)
  await daemon.logged('token-given')
})
