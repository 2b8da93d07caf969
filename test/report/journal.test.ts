// Records under systemd are entries of the journal, of which nothing that it does not accept at once is lost.
import { fstatSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { assert, jsonValue, property, string } from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createSystemClock, type Clock } from '../../src/lib/clock.ts'
import { loadLibc } from '../../src/lib/libc.ts'
import { createLog, type LogSettings } from '../../src/report/log.ts'
import { createFakeClock } from '../support/fake-clock.ts'
import { receiveJournal } from '../support/journal-receiver.ts'
import { lacks } from '../support/lacks.ts'
import { createMemoryStream } from '../support/memory-stream.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const { dev, ino } = fstatSync(0, { bigint: true })
/** More than a socket of datagrams keeps (net.unix.max_dgram_qlen, and what a sender may have under way). */
const MANY = 300

async function openJournal(
  options: Partial<LogSettings> & {
    clock?: Clock
    secrets?: string[]
    isReading?: boolean
    isGone?: boolean
  } = {},
) {
  const { clock = createSystemClock(), secrets = [], isReading = true, isGone = false, ...settings } = options
  const path = join(await tempDirectory(), 'socket')
  const receiver = await receiveJournal(path, { isReading })
  if (isGone) rmSync(path)
  const stream = Object.assign(createMemoryStream(), { fd: 0 })
  const log = createLog({
    level: 'info',
    format: 'auto',
    ...settings,
    stream,
    env: { JOURNAL_STREAM: `${dev}:${ino}` },
    clock,
    secrets: () => secrets,
    sendEntry: (to, entry) => loadLibc().sendDatagram(to, entry),
    identifier: 'kyc-tokend@eu',
    journalSocket: path,
  })
  return { ...log, ...receiver, path, stream }
}

describe.skipIf(lacks('python3'))('under systemd', () => {
  test('a record is one entry: its line, its level, who logged it, and each field', async () => {
    const { log, close, entries, stream } = await openJournal()
    log('warning', 'Something is odd', {
      event: 'something-odd',
      retryAt: '2030-01-01T00:00:00.000Z',
      attempts: 3,
      isOver: false,
      status: null,
      cause: undefined,
      files: ['one', 'two words', null, { path: 'three' }],
      none: [],
      share: { state: 'alone', hosts: 2 },
      error: new Error('no route'),
    })
    const [entry] = await expectUntil('the entry', () => entries.length > 0 && entries)
    expect(entry).toEqual({
      MESSAGE: [expect.stringMatching(/^Something is odd event=something-odd retryAt=.* error="no route"$/)],
      PRIORITY: ['4'],
      SYSLOG_IDENTIFIER: ['kyc-tokend@eu'],
      KYC_EVENT: ['something-odd'],
      KYC_RETRY_AT: ['2030-01-01T00:00:00.000Z'],
      KYC_ATTEMPTS: ['3'],
      KYC_IS_OVER: ['false'],
      KYC_FILES: ['one', 'two words', '{"path":"three"}'],
      KYC_SHARE: ['{"state":"alone","hosts":2}'],
      KYC_ERROR: ['no route'],
    })
    await close()
    expect(stream.lines()).toEqual([])
  })

  test('of a text with line ends each byte comes over, and nothing else can begin a field', async () => {
    const { log, entries } = await openJournal()
    log('info', 'Echo', { event: 'echo', detail: 'one\nPRIORITY=0\n\x1b[2J', empty: '' })
    const [entry] = await expectUntil('the entry', () => entries.length > 0 && entries)
    expect(entry).toEqual({
      MESSAGE: [expect.stringMatching(/^Echo event=echo detail="one\\nPRIORITY=0/)],
      PRIORITY: ['6'],
      SYSLOG_IDENTIFIER: ['kyc-tokend@eu'],
      KYC_EVENT: ['echo'],
      KYC_DETAIL: [String.raw`one${'\n'}PRIORITY=0${'\n'}\u001b[2J`],
      KYC_EMPTY: [''],
    })
  })

  test('whatever fields hold, an entry can be read, and has no control character but line ends', async () => {
    const { log, entries } = await openJournal()
    let sent = 0
    assert(
      property(jsonValue(), string({ unit: 'binary' }), (value, text) => {
        sent += 1
        log('info', 'Any', { event: 'any', value, text })
      }),
    )
    await expectUntil('all of them', () => entries.length === sent)
    for (const entry of entries)
      for (const value of Object.values(entry).flat())
        expect(value).not.toMatch(/[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]/)
  })

  test('no field has a secret, encoded or not; a value over 64 KiB is cut; a name is one', async () => {
    const secret = 'p"ss wörd+/42'
    const { log, entries } = await openJournal({ secrets: [secret] })
    const long = { list: Array.from({ length: 40 }, () => 'é'.repeat(4_000)) }
    log('info', 'Echo', {
      event: 'echo',
      detail: `you sent ${Buffer.from(secret).toString('base64')}`,
      echoes: [secret],
      ...long,
      long,
      'odd name=': '1',
    })
    const [entry] = await expectUntil('the entry', () => entries.length > 0 && entries)
    expect(entry).toMatchObject({
      MESSAGE: [expect.stringMatching(/^Echo event=echo omittedBytes=\d{6}$/)],
      KYC_DETAIL: ['you sent [secret]'],
      KYC_ECHOES: ['[secret]'],
      KYC_ODD_NAME_: ['1'],
    })
    expect(JSON.stringify(entry)).not.toContain('wörd')
    expect(Buffer.byteLength(JSON.stringify(entry))).toBeLessThan(200_000)
    log('info', 'One', { event: 'one', long: ['x'.repeat(4_000), long] })
    const [, other] = await expectUntil('the entry', () => entries.length > 1 && entries)
    const [, cut] = other!['KYC_LONG']!
    expect(Buffer.byteLength(cut!)).toBe(64 * 1024)
    expect(cut).toMatch(/^\{"list":\["é+"/)
  })

  test('what a journal does not accept waits, in its order, and is tried again each 100 ms', async () => {
    const clock = createFakeClock()
    const { log, lost, entries, read } = await openJournal({ clock, isReading: false })
    for (let count = 0; count < MANY; count += 1) log('info', 'Many', { event: 'many', count })
    read()
    await expectUntil('those that the socket kept', () => entries.length > 0)
    await expectUntil('all of them', async () => {
      await clock.advance(100)
      return entries.length === MANY
    })
    expect(entries.map((entry) => Number(entry['KYC_COUNT']))).toEqual(Array.from(Array(MANY).keys()))
    expect(lost()).toBe(0)
    expect(clock.sleepers()).toBe(0)
  })

  test.each([
    ['nobody listens', false],
    ['its socket is gone', true],
  ])('at most 1 MiB waits while %s; then one record says how many were lost', async (_, isRemoved) => {
    const clock = createFakeClock()
    const { log, lost, path, stop } = await openJournal({ clock })
    await stop()
    if (isRemoved) rmSync(path)
    for (let count = 0; count < 5_000; count += 1)
      log('info', 'Many', { event: 'many', count, filler: 'x'.repeat(200) })
    expect(lost()).toBeGreaterThan(1_000)
    const { entries } = await receiveJournal(path)
    await expectUntil('the count', async () => {
      await clock.advance(100)
      return entries.at(-1)?.['KYC_EVENT']?.[0] === 'log-records-lost'
    })
    expect(entries.at(-1)).toMatchObject({ PRIORITY: ['4'], KYC_DROPPED: [String(lost())] })
    expect(entries).toHaveLength(5_000 - lost() + 1)
    expect(entries.every((entry, index) => index === entries.length - 1 || Number(entry['KYC_COUNT']) === index))
      .toBe(true) // prettier-ignore
  })

  test('where there is no socket, records are lines with their priority', async () => {
    const { log, close, entries, reconfigure, stream } = await openJournal({ isGone: true })
    log('error', 'No socket', { event: 'no-socket' })
    reconfigure({ level: 'info', format: 'json' })
    log('notice', 'Wanted so', { event: 'wanted-so' })
    await close()
    expect(stream.lines()).toEqual([
      '<3>No socket event=no-socket',
      expect.stringMatching(/^<5>\{"time":.*"event":"wanted-so"\}$/),
    ])
    expect(entries).toEqual([])
  })

  test('the end waits 100 ms after the last entry, so that the journal sees whose it is', async () => {
    const clock = createFakeClock()
    const { log, close } = await openJournal({ clock })
    await close()
    log('error', 'The end', { event: 'the-end' })
    let isClosed = false
    void close().then(() => (isClosed = true))
    await clock.advance(99)
    expect(isClosed).toBe(false)
    await clock.advance(1)
    expect(isClosed).toBe(true)
  })
})
