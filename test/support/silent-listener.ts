// A listener that answers no attempt to connect, and names that have addresses of the test's.
import { spawn } from 'node:child_process'
import dns from 'node:dns'
import { once } from 'node:events'
import net from 'node:net'
import { onTestFinished, vi, type MockInstance } from 'vitest'

/** Listens at this address until the test ends, stopped and with a full backlog: the kernel answers no SYN. */
export async function startSilentListener(host: string, port: number): Promise<void> {
  const program = `require('node:net').createServer().listen({ port: ${port}, host: '${host}', backlog: 1 }, () => console.log('listens'))`
  const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  await once(child.stdout, 'data')
  child.kill('SIGSTOP')
  const fillers = Array.from({ length: 3 }, () => net.connect(port, host).on('error', () => undefined))
  onTestFinished(() => fillers.forEach((socket) => socket.destroy()))
  await once(fillers[1]!, 'connect')
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
