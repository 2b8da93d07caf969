// A listener that answers no attempt to connect until it is let, and then passes each connection on.
import { spawn } from 'node:child_process'
import dns from 'node:dns'
import { once } from 'node:events'
import net from 'node:net'
import { vi, type MockInstance } from 'vitest'

const PROGRAM = `
  const net = require('node:net')
  const [target, port, host] = process.argv.slice(1)
  net.createServer((socket) => {
    const onward = net.connect(+target, '127.0.0.1')
    socket.on('error', () => onward.destroy()).pipe(onward).on('error', () => socket.destroy()).pipe(socket)
  }).listen({ port: +port, host, backlog: 1 }, () => console.log('listens'))`

/**
 * Listens at this address, stopped and with a full backlog: the kernel answers no SYN. `stops` gets what ends
 * it. Returns what lets it answer; the kernel of the other side repeats a SYN after 1 s.
 */
export async function startSilentListener(
  { host, port, target }: { host: string; port: number; target: number },
  stops: (stop: () => void) => void,
): Promise<() => void> {
  const words = ['-e', PROGRAM, String(target), String(port), host]
  const child = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'inherit'] })
  stops(() => void child.kill('SIGKILL'))
  await once(child.stdout, 'data')
  child.kill('SIGSTOP')
  const fillers = Array.from({ length: 3 }, () => net.connect(port, host).on('error', () => undefined))
  stops(() => fillers.forEach((socket) => socket.destroy()))
  await once(fillers[1]!, 'connect')
  return () => void child.kill('SIGCONT')
}

/** Every name has these IPv4 addresses from now on, until the returned function is called. */
export function nameHas(...addresses: readonly string[]): () => void {
  const lookup = vi.spyOn(dns, 'lookup') as unknown as MockInstance<(...given: unknown[]) => void>
  lookup.mockImplementation((_name, _options, callback) => {
    const found = addresses.map((address) => ({ address, family: 4 }))
    ;(callback as (error: null, found: object) => void)(null, found)
  })
  return () => lookup.mockRestore()
}
