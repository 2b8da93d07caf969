import { join } from 'node:path'
import { expect, it } from 'vitest'
import { serveMisconfigured } from '../../src/delivery/servers.ts'
import { loadLibc } from '../../src/lib/libc.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { askOnce } from '../support/ipc-client.ts'
import { createRecords } from '../support/records.ts'
import { tempDirectory } from '../support/temp-directory.ts'

it('a daemon whose configuration is faulty answers so for 2 s, and then ends', async () => {
  const path = join(await tempDirectory(), 'ipc.sock')
  const inherited = {
    ipc: [loadLibc().listenAt(path, 16)],
    http: [],
    metrics: [],
    credential: [],
    unknown: [],
  }
  const clock = createFakeClock()
  const { signal } = new AbortController()
  let isOver = false
  const options = { message: 'baseUrl: correct it', log: createRecords().log, clock, signal }
  const served = serveMisconfigured(inherited, options).then(() => (isOver = true))
  const ask = async () => askOnce(path, 'token.get', {})
  const answer = { type: 'fault', data: { code: 'misconfigured', message: 'baseUrl: correct it' } }
  expect(await ask()).toMatchObject(answer)
  await clock.advance(1_999)
  expect([isOver, await ask()]).toMatchObject([false, answer])
  await clock.advance(1)
  await served
})
