// Programs that read the token file by themselves: the rows of readers.md that are marked as tested, as far as no other test has them.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'
import { lacks } from '../support/lacks.ts'
import { freePort } from '../support/redis.ts'
import { serviceOf } from '../support/outside.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

/** Replaces the file as the daemon does. */
function replace(path: string, text: string): void {
  writeFileSync(`${path}.new`, text)
  renameSync(`${path}.new`, path)
}

test.skipIf(lacks('prometheus'))(
  'Prometheus reads the file at each scrape, and without it sends nothing',
  async () => {
    const directory = await tempDirectory()
    const token = join(directory, 'token')
    const metrics = { headers: { 'content-type': 'text/plain; version=0.0.4' }, body: 'up_to_date 1\n' }
    const service = await serviceOf(metrics)
    const isSent = (name: string): boolean =>
      service.requests.at(-1)?.headers.authorization === `Bearer ${name}`
    replace(token, 'first')
    const target = new URL(service.url).host
    const scrape = {
      job_name: 'api',
      authorization: { credentials_file: token },
      static_configs: [{ targets: [target] }],
    }
    const configFile = join(directory, 'prometheus.yml')
    writeFileSync(configFile, JSON.stringify({ global: { scrape_interval: '1s' }, scrape_configs: [scrape] }))
    const address = `127.0.0.1:${await freePort()}`
    const words = [`--config.file=${configFile}`, `--storage.tsdb.path=${join(directory, 'data')}`]
    const prometheus = spawn('prometheus', [...words, `--web.listen-address=${address}`], { stdio: 'ignore' })
    const ended = once(prometheus, 'exit')
    onTestFinished(async () => {
      prometheus.kill('SIGTERM')
      await ended
    })
    await expectUntil('a scrape', () => isSent('first'))
    replace(token, 'second')
    await expectUntil('a scrape with the new token', () => isSent('second'))
    rmSync(token)
    const isDown = async (): Promise<boolean> => {
      const text = await fetch(`http://${address}/api/v1/targets`).then((response) => response.text())
      return text.includes('"health":"down"') && text.includes('no such file')
    }
    await expectUntil('a scrape that fails', isDown)
    replace(token, 'third')
    await expectUntil('a scrape with the next token', () => isSent('third'))
    const sent = new Set(service.requests.map(({ headers }) => headers.authorization))
    expect(sent).toEqual(new Set(['Bearer first', 'Bearer second', 'Bearer third']))
  },
)

// Later versions may do otherwise: this is that of Debian 12.
const isCurl7 = spawnSync('curl', ['--version'], { encoding: 'utf8' }).stdout?.startsWith('curl 7.') ?? false
if (!isCurl7) process.stderr.write('The file that is missing is not tested: there is no curl 7\n')
test.skipIf(!isCurl7)('curl warns of a missing file, and sends the request without the header', async () => {
  const service = await serviceOf({})
  const missing = join(await tempDirectory(), 'token.header')
  const curl = spawn('curl', ['-H', `@${missing}`, service.url], { stdio: ['ignore', 'ignore', 'pipe'] })
  let stderr = ''
  curl.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
  const [status] = (await once(curl, 'close')) as [number]
  expect(status).toBe(0)
  expect(stderr).toContain('Warning')
  expect(service.requests.map(({ headers }) => headers.authorization)).toEqual([undefined])
})
