// Calls of libc that no other test meets: the locks, `exec` and the notifications of systemd have tests of their own.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, copyFileSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { onTestFinished, expect, test } from 'vitest'
import { loadLibc } from '../../src/lib/libc.ts'
import { PROGRAM } from '../support/daemon.ts'
import { lacks } from '../support/lacks.ts'
import { listening } from '../support/listening.ts'
import { runProgram } from '../support/run-cli.ts'
import { tempDirectory } from '../support/temp-directory.ts'

/** Connects to the socket and stays until it is disconnected. */
const CONNECTING = `import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
client.recv(1)`

test.skipIf(process.getuid?.() !== 0 || lacks('python3', 'setpriv'))(
  'a peer is known by its user, its group and all of its supplementary groups',
  async () => {
    const directory = await tempDirectory()
    const path = join(directory, 'peer.sock')
    const server = createServer()
    await listening(server, path)
    chmodSync(directory, 0o755)
    chmodSync(path, 0o666)
    const groups = Array.from({ length: 300 }, (_, index) => 20_000 + index)
    const as = ['--reuid=65533', '--regid=7', `--groups=${groups.join(',')}`, '/usr/bin/env', 'python3']
    const child = spawn('setpriv', [...as, '-c', CONNECTING, path], { stdio: 'inherit' })
    onTestFinished(() => void child.kill('SIGKILL'))
    const [socket] = (await once(server, 'connection')) as [Socket]
    const { fd } = Reflect.get(socket, '_handle') as { fd: number }
    expect(loadLibc().peerOf(fd)).toEqual({ uid: 65_533, gid: 7 })
    expect(loadLibc().peerGroups(fd)).toEqual(groups)
    socket.destroy()
  },
)

const RECEIVING = `import socket, sys
receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
receiver.bind(chr(0) + sys.argv[1])
print('bound', flush=True)
print(receiver.recv(65536).decode(), end='')`

test.skipIf(lacks('python3'))('a datagram arrives at a socket with an abstract name', async () => {
  const name = `kyc-libc-${process.pid}`
  const receiver = spawn('python3', ['-c', RECEIVING, name], { stdio: ['ignore', 'pipe', 'inherit'] })
  onTestFinished(() => void receiver.kill('SIGKILL'))
  const { stdout } = receiver
  await once(stdout, 'readable')
  loadLibc().sendDatagram(`@${name}`, 'READY=1\nSTATUS=café')
  expect(await text(stdout)).toBe('bound\nREADY=1\nSTATUS=café')
})

test('where koffi is not installed the error has the reason and the remedy', async () => {
  const directory = await tempDirectory()
  const alone = join(directory, 'cli.cjs')
  copyFileSync(PROGRAM[1], alone)
  const command = [process.execPath, alone, 'run', '--config', join(directory, 'none.json')]
  const { status, stderr } = await runProgram(command)
  expect(`${String(status)} ${stderr}`).toMatch(
    /^78 The package koffi, .* \(Cannot find module '@koromix\/koffi-linux-.*'\): .*`npm install koffi`/,
  )
})
