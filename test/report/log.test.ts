import { spawn } from 'node:child_process'
import { fstatSync } from 'node:fs'
import { open, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createSystemClock } from '../../src/lib/clock.ts'
import { fs } from '../../src/files/fs.ts'
import { createLog, type LogSettings } from '../../src/report/log.ts'
import { createMemoryStream } from '../support/memory-stream.ts'
import { canMount, smallDisk } from '../support/small-disk.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const clock = createSystemClock()
const { dev, ino } = fstatSync(0, { bigint: true })

function openLog(
  options: Partial<LogSettings> & { env?: NodeJS.ProcessEnv; traits?: object; secrets?: () => string[] } = {},
) {
  const { env = {}, traits = {}, secrets = () => [], ...settings } = options
  const stream = Object.assign(createMemoryStream(), traits)
  const log = createLog({
    level: 'info',
    format: 'auto',
    stream,
    env,
    clock,
    secrets,
    ...settings,
  })
  return { ...log, stream }
}

test('a record less urgent than the level is not written, and a reload changes that', async () => {
  const { log, close, reconfigure, stream } = openLog({ format: 'text', level: 'notice' })
  log('info', 'Unwanted', { event: 'no' })
  reconfigure({ level: 'debug', format: 'json' })
  log('debug', 'Wanted', { event: 'yes' })
  await close()
  expect(stream.lines().map((line) => JSON.parse(line) as unknown)).toEqual([
    expect.objectContaining({ level: 'debug', message: 'Wanted', event: 'yes' }),
  ])
})

test('secrets are asked for with each record: those of a reload count too', async () => {
  const secrets = ['alpha-secret']
  const { log, close, stream } = openLog({ format: 'json', secrets: () => secrets })
  log('info', 'Echo', { event: 'echo', detail: 'alpha-secret' })
  await close()
  secrets.push('beta-secret')
  log('info', 'Echo', { event: 'echo', detail: 'beta-secret' })
  for (const line of stream.lines())
    expect(JSON.parse(line)).toMatchObject({ event: 'echo', detail: '[secret]' })
  expect(stream.lines()).toHaveLength(2)
})

test.each([
  ['text on a terminal, coloured', { traits: { isTTY: true } }, /^\d{4}.* \x1b\[34minfo/],
  [
    'text on a terminal without colour under NO_COLOR',
    { traits: { isTTY: true }, env: { NO_COLOR: '1' } },
    /^\d{4}.* info {4}Hello event=hello$/,
  ],
  [
    'text for the journal',
    { traits: { fd: 0 }, env: { JOURNAL_STREAM: `${dev}:${ino}` } },
    /^<6>Hello event=hello$/,
  ],
  ['json elsewhere', {}, /^\{.*\}$/],
  ['json where the journal is elsewhere', { traits: { fd: 0 }, env: { JOURNAL_STREAM: '1:2' } }, /^\{/],
  ['json where the descriptor is closed', { traits: { fd: 9_999 }, env: { JOURNAL_STREAM: '1:2' } }, /^\{/],
])('auto: %s', async (_, options, line) => {
  const { log, close, stream } = openLog(options)
  log('info', 'Hello', { event: 'hello' })
  await close()
  expect(stream.lines()[0]).toMatch(line)
})

test('what no one reads is dropped beyond 1 MiB, and one record says how much', async () => {
  const { log, lost, stream } = openLog({ format: 'json' })
  stream.stall()
  for (let count = 0; count < 20_000; count += 1)
    log('info', 'Flood', { event: 'flood', count, filler: 'x'.repeat(100) })
  expect(lost()).toBeGreaterThan(10_000)
  expect(stream.writableLength).toBeLessThan(1024 * 1024 + 1)
  const dropped = lost()
  stream.flow()
  await expect.poll(() => stream.lines().at(-1)).toContain('log-records-lost')
  expect(JSON.parse(stream.lines().at(-1) ?? '')).toMatchObject({ level: 'warning', dropped })
  expect(stream.lines()).toHaveLength(20_000 - dropped + 1)
  log('info', 'On', { event: 'on' })
  expect(stream.lines().at(-1)).toContain('"On"')
  expect(lost()).toBe(dropped)
})

test('a stream that fails is survived, and its records are counted as lost', async () => {
  const { log, close, lost, stream } = openLog()
  stream.destroy(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }))
  log('info', 'Into the void', { event: 'void' })
  await expect.poll(lost).toBe(1)
  log('info', 'Into the void', { event: 'void' })
  await close()
  expect(lost()).toBe(2)
})

async function logOnSmallDisk(format: LogSettings['format']) {
  const directory = join(await tempDirectory(), 'disk')
  const disk = smallDisk(directory)
  const file = await open(join(directory, 'log'), 'a')
  onTestFinished(() => file.close())
  const opened = openLog({ format, traits: { fd: file.fd } })
  return { ...opened, disk, written: () => readFile(join(directory, 'log'), 'utf8') }
}

test.skipIf(!canMount)('a log on a disk that was full goes on when there is space again', async () => {
  const { disk, log, lost, close, written } = await logOnSmallDisk('json')
  log('info', 'Before', { event: 'before' })
  await close()
  disk.fill()
  // The rest of the last page is cut in the midst of a record.
  for (let count = 0; count < 5; count += 1)
    log('info', 'Lost', { event: 'lost', count, filler: 'x'.repeat(3_000) })
  await close()
  disk.empty()
  log('info', 'After', { event: 'after' })
  await expectUntil('the count', async () => (await written()).includes('log-records-lost'))
  const lines = (await written()).trimEnd().split('\n')
  const whole = lines
    .filter((line) => line.endsWith('}'))
    .map((line) => JSON.parse(line) as { event: string })
  expect(whole.map(({ event }) => event).filter((event) => event !== 'lost')).toEqual([
    'before',
    'after',
    'log-records-lost',
  ])
  expect(lines.length).toBe(whole.length + 1)
  expect(lines.find((line) => !line.endsWith('}'))).toMatch(/^\{"time":.*"event":"lost"/)
  expect(lost()).toBeGreaterThan(3)
  expect(whole.at(-1)).toMatchObject({ dropped: lost() })
})

test.skipIf(!canMount)('a disk that takes not one byte of a record leaves no empty line', async () => {
  const { disk, log, close, written } = await logOnSmallDisk('text')
  disk.fill()
  log('info', 'Lost', { event: 'lost' })
  await close()
  disk.empty()
  log('info', 'After', { event: 'after' })
  await expectUntil('the count', async () => (await written()).includes('dropped='))
  expect((await written()).split('\n')).toEqual([
    expect.stringMatching(/After event=after$/),
    expect.stringMatching(/dropped=1$/),
    '',
  ])
})

test('for a disk that hangs 1 MiB of records waits; more are lost, and counted once it answers', async () => {
  const directory = await tempDirectory()
  const path = join(directory, 'log')
  const file = await open(path, 'a')
  onTestFinished(() => file.close())
  const { log, lost } = openLog({ format: 'json', traits: { fd: file.fd } })
  const answer = Promise.withResolvers<void>()
  const write = vi.spyOn(fs, 'write').mockImplementationOnce(async (...line: Parameters<typeof fs.write>) => {
    await answer.promise
    return fs.write(...line)
  })
  onTestFinished(() => write.mockRestore())
  for (let count = 0; count < 2_000; count += 1)
    log('info', 'One', { event: 'one', filler: 'x'.repeat(1_000) })
  expect((await readFile(path)).length).toBe(0)
  expect(lost()).toBeGreaterThan(900)
  answer.resolve()
  await expectUntil('the count', async () => (await readFile(path, 'utf8')).includes(`"dropped":${lost()}`))
  expect((await readFile(path)).length).toBeLessThan(1024 * 1024 + 1_000)
})

test('closing waits a second for a reader that has stopped, and leaves no exit listeners', async () => {
  const before = process.listenerCount('exit')
  const { log, close, stream } = openLog()
  stream.stall()
  log('info', 'One', { event: 'one' })
  log('info', 'Two', { event: 'two' })
  const from = performance.now()
  await close()
  expect(performance.now() - from).toBeLessThan(5_000)
  expect(performance.now() - from).toBeGreaterThan(900)
  expect(process.listenerCount('exit')).toBe(before)
})

const imports = `
  import { createLog } from ${JSON.stringify(new URL('../../src/report/log.ts', import.meta.url).href)}
  import { createSystemClock } from ${JSON.stringify(new URL('../../src/lib/clock.ts', import.meta.url).href)}
  const options = {
    level: 'info', format: 'json', stream: process.stderr,
    env: process.env, clock: createSystemClock(), secrets: () => [],
  }
  const { log, close } = createLog(options)
`

async function linesOf(source: string): Promise<string[]> {
  const program = ['--input-type=module', '-e', `${imports}\n${source}`]
  const child = spawn(process.execPath, program, { stdio: ['ignore', 'ignore', 'pipe'] })
  return (await text(child.stderr)).trim().split('\n')
}

test('nothing is lost when the process runs dry', async () => {
  expect(await linesOf(`log('info', 'One', { event: 'one' })`)).toEqual([expect.stringContaining('"One"')])
})

test('all of it is in the pipe of a slow reader after an orderly exit', async () => {
  const lines = await linesOf(`
    for (let count = 0; count < 5000; count += 1)
      log('info', 'Line', { event: 'line', count, filler: 'x'.repeat(50) })
    await close()
    process.exit(0)`)
  expect(lines).toHaveLength(5000)
  expect(lines.at(-1)).toContain('"count":4999')
})
