// Faults that keep the daemon from starting.
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { startDaemon } from '../support/daemon.ts'
import { tempDirectory } from '../support/temp-directory.ts'

test('the daemon ends and gives up its sockets if a setting shows late that it cannot work', async () => {
  const directory = await tempDirectory()
  const env = { HTTPS_PROXY: 'socks5://proxy.test:1080' }
  const daemon = startDaemon({ directory, baseUrl: 'https://service.test', env })
  expect(await daemon.ended()).toBe(78)
  expect(daemon.stderr()).toContain('HTTPS_PROXY')
  expect(readdirSync(join(directory, 'run')).filter((name) => name.endsWith('.sock'))).toEqual([])
})
