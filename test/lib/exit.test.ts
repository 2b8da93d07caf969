import { spawn } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { configOf, PROGRAM } from '../support/daemon.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const isRoot = process.getuid?.() === 0
/** An address at which no other test has a name server. */
const ADDRESS = '127.53.0.53'

test.skipIf(!isRoot)(
  'a stop in the midst of a name lookup without an answer takes less than 5 s',
  async () => {
    const directory = await tempDirectory()
    const server = createSocket('udp4')
    onTestFinished(() => void server.close())
    server.bind(53, ADDRESS)
    await once(server, 'listening')
    const resolvConf = join(directory, 'resolv.conf')
    // Without a stop the lookup would take these 25 s.
    writeFileSync(resolvConf, `nameserver ${ADDRESS}\noptions timeout:25 attempts:1\n`)
    const configFile = join(directory, 'config.json')
    mkdirSync(join(directory, 'run'))
    const config = configOf({ directory, baseUrl: 'https://no-such-name.example' })
    writeFileSync(configFile, JSON.stringify(config), { mode: 0o600 })
    const seeing = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
    const args = ['--mount', 'sh', '-c', seeing, resolvConf, ...PROGRAM, 'run', '--config', configFile]
    const daemon = spawn('unshare', args, { stdio: 'ignore' })
    onTestFinished(() => void daemon.kill('SIGKILL'))
    await once(server, 'message')
    const before = performance.now()
    daemon.kill('SIGTERM')
    expect(await once(daemon, 'exit')).toEqual([0, null])
    expect(performance.now() - before).toBeLessThan(5_000)
  },
)
