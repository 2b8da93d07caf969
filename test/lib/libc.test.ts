import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, copyFileSync, openSync, readdirSync } from 'node:fs'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import type { Readable } from 'node:stream'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { loadLibc, type Libc } from '../../src/lib/libc.ts'
import { PROGRAM } from '../support/daemon.ts'
import { lacks } from '../support/lacks.ts'

const isRoot = process.getuid?.() === 0
const module = JSON.stringify(new URL('../../src/lib/libc.ts', import.meta.url).href)
let directory: string
let libc: Libc

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'kyc-libc-'))
  await chmod(directory, 0o755)
  libc = loadLibc()
})
afterAll(() => rm(directory, { recursive: true, force: true }))

/** An error with this code. */
const withCode = (code: string, facts: object = {}) => expect.objectContaining({ code, ...facts }) as Error

function fdOf(socket: Socket): number {
  return (Reflect.get(socket, '_handle') as { fd: number }).fd
}

/** A program that connects to the socket and stays until it is disconnected. */
const connecting = `import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
client.recv(1)`

/** The kernel's report on a client of this command line. */
async function seenAs(
  command: string,
  args: string[],
  options: object = {},
): Promise<{ peer: ReturnType<Libc['peerOf']>; groups: number[] }> {
  const path = join(directory, `${Math.random()}.sock`)
  const server = createServer().listen(path)
  try {
    await once(server, 'listening')
    await chmod(path, 0o666)
    const child = spawn(command, [...args, '-c', connecting, path], { stdio: 'inherit', ...options })
    const [socket] = (await once(server, 'connection')) as [Socket]
    const peer = libc.peerOf(fdOf(socket))
    const groups = libc.peerGroups(fdOf(socket))
    socket.destroy()
    await once(child, 'exit')
    return { peer, groups }
  } finally {
    server.close()
  }
}

test.skipIf(lacks('python3'))('a peer is known by its user and group', async () => {
  const { peer } = await seenAs('python3', [])
  expect(peer).toEqual({ uid: process.getuid?.(), gid: process.getgid?.() })
})

test.skipIf(!isRoot || lacks('python3', 'setpriv'))(
  'all supplementary groups of a peer are reported, also where they are many',
  async () => {
    const groups = Array.from({ length: 300 }, (_, index) => 20_000 + index)
    const seen = await seenAs(
      'setpriv',
      ['--reuid=65533', '--regid=7', `--groups=${groups.join(',')}`, '/usr/bin/env', 'python3'],
      {
        env: { PATH: '/usr/bin:/bin' },
      },
    )
    expect(seen.groups).toEqual(groups)
  },
)

test('what is no socket is a system call error with its code', () => {
  expect(() => libc.peerOf(99_999)).toThrow(withCode('EBADF'))
  expect(() => libc.peerGroups(99_999)).toThrow(withCode('EBADF'))
})

const receiving = `import socket, sys
receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
receiver.bind(chr(0) + sys.argv[1])
print('bound', flush=True)
print(receiver.recv(65536).decode(), end='')`

// That of the journal has a path: report/journal.test.ts.
test.skipIf(lacks('python3'))('a datagram arrives at a socket with an abstract name', async () => {
  const name = `kyc-libc-${process.pid}`
  const { stdout } = spawn('python3', ['-c', receiving, name], { stdio: ['ignore', 'pipe', 'inherit'] })
  await once(stdout, 'readable')
  libc.sendDatagram(`@${name}`, 'READY=1\nSTATUS=café')
  expect(await text(stdout)).toBe('bound\nREADY=1\nSTATUS=café')
})

test('no receiver at the path, and a path that is too long, are errors without a trace', () => {
  const before = readdirSync('/proc/self/fd').length
  for (let index = 0; index < 100; index += 1)
    expect(() => libc.sendDatagram(join(directory, 'none'), '')).toThrow(
      withCode('ENOENT', { message: 'sendto: ENOENT' }),
    )
  expect(() => libc.sendDatagram(`/${'x'.repeat(106)}`, '')).toThrow('sendto: ENOENT')
  expect(() => libc.sendDatagram(`/${'x'.repeat(107)}`, '')).toThrow(/at most 107 bytes/)
  expect(readdirSync('/proc/self/fd').length).toBeLessThan(before + 50)
})

/** Runs this source in a Node of its own; `libc` is there, and descriptor 3 is a socket. */
async function inChild(source: string, options: object = {}): Promise<string> {
  const program = `import { loadLibc } from ${module}
    const libc = loadLibc()
    ${source}`
  const stdio = ['ignore', 'pipe', 'inherit', 'pipe'] as const
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    ...options,
    stdio: [...stdio],
  })
  return text(child.stdout as Readable)
}

test('another program replaces this one, with its process id, streams and environment', async () => {
  const output = await inChild(
    `console.log(process.pid)
     libc.replaceProcess(['sh', '-c', 'echo "$$ $0" ; cat /proc/$$/environ', 'a b'],
       { GREETING: 'grüß dich', HOME: undefined, LAST: '' })`,
  )
  const [pid, ...rest] = output.split('\n')
  expect(rest).toEqual([`${pid} a b`, 'GREETING=grüß dich\0LAST=\0'])
})

/** `kyc-tokend run` without a configuration, which is looked for after libc is loaded. */
async function runProgram(program: string): Promise<string> {
  const words = [program, 'run', '--config', join(directory, 'none.json')]
  const child = spawn(process.execPath, words, { stdio: ['ignore', 'ignore', 'pipe'] })
  const [stderr, [status]] = await Promise.all([text(child.stderr), once(child, 'exit')])
  return `${String(status)} ${stderr}`
}

test('where koffi is not installed the error has the reason and the remedy', async () => {
  const alone = join(directory, 'cli.cjs')
  copyFileSync(PROGRAM[1], alone)
  expect(await runProgram(alone)).toMatch(
    /^78 The package koffi, .* \(Cannot find module '@koromix\/koffi-linux-.*'\): .*`npm install koffi`/,
  )
})

test('an open file is locked until it is closed, for one process', async () => {
  const path = join(directory, 'locked')
  const open = () => openSync(path, 'a')
  const [first, second] = [open(), open()]
  expect([libc.lock(first), libc.lock(second)]).toEqual([true, false])
  closeSync(first)
  expect(libc.lock(second)).toBe(true)
  closeSync(second)
  expect(() => libc.lock(second)).toThrow('flock: EBADF')
})
