import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { PROGRAM, startDaemon } from '../support/daemon.ts'
import { tempDirectory } from '../support/temp-directory.ts'

/** An address at which no other test has a name server. */
const ADDRESS = '127.53.0.53'

test.skipIf(process.getuid?.() !== 0)('a name lookup without an answer does not hold up a stop', async () => {
  const directory = await tempDirectory()
  const server = createSocket('udp4')
  onTestFinished(() => void server.close())
  server.bind(53, ADDRESS)
  await once(server, 'listening')
  const resolvConf = join(directory, 'resolv.conf')
  // Without a stop the lookup would take these 25 s.
  writeFileSync(resolvConf, `nameserver ${ADDRESS}\noptions timeout:25 attempts:1\n`)
  const seeing = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
  const program = ['unshare', '--mount', 'sh', '-c', seeing, resolvConf, ...PROGRAM]
  const daemon = startDaemon({ directory, baseUrl: 'https://no-such-name.example', program })
  await once(server, 'message')
  const before = performance.now()
  expect(await daemon.end()).toBe(0)
  expect(performance.now() - before).toBeLessThan(5_000)
})
