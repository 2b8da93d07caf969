// subscribe: now and at each change, never twice for the same.
import { spawn } from 'node:child_process'
import { expect, test } from 'vitest'
import { clientOf, daemonWith, generous, tokenFields } from '../support/client-world.ts'
import { holds } from '../support/until.ts'

const root = new URL('../..', import.meta.url).pathname

test('a listener is called now and at each change, until it is ended; all share one subscription', async () => {
  const daemon = await daemonWith(generous)
  const client = clientOf(daemon)
  const follow = () => {
    const tokens: string[] = []
    const end = client.subscribe(({ accessToken, state }) => tokens.push(`${accessToken} ${state}`))
    return { tokens, end }
  }
  const { tokens, end } = follow()
  await holds(() => tokens.length === 1)
  daemon.publish('token.changed', tokenFields('token-2'))
  await holds(() => tokens.length === 2)
  daemon.publish('token.changed', tokenFields('token-2', { state: 'degraded' }))
  await holds(() => tokens.length === 3)
  const later = follow()
  const never = follow()
  never.end()
  end()
  daemon.publish('token.changed', tokenFields('token-3'))
  await holds(() => later.tokens.length === 2)
  expect(tokens).toEqual(['token-1 ready', 'token-2 ready', 'token-2 degraded'])
  expect(later.tokens).toEqual(['token-2 degraded', 'token-3 ready'])
  expect(never.tokens).toEqual([])
  expect(daemon.asked).toHaveLength(1)
})

/** The output and the exit status of a program with a TokenClient `tokens` of this daemon. */
function runProgram(path: string, program: string) {
  const source = `import { TokenClient } from '${root}src/client/index.ts'
    const tokens = new TokenClient({ socketPath: '${path}' })\n${program}`
  const child = spawn(process.execPath, ['--input-type=module', '-e', source])
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (text: Buffer) => (output += text.toString()))
  const ended = new Promise<number | null>((resolve) => child.on('close', resolve))
  return { ended, output: () => output }
}

test('an idle client keeps no process alive, and a subscription does', async () => {
  const daemon = await daemonWith((asking) => {
    if (asking.type === 'status.get') asking.answer('status.result', { state: 'ready' })
    else generous(asking)
  })
  const calls = `console.log((await tokens.get()).accessToken, (await tokens.status()).state)
    console.log(process.getActiveResourcesInfo().includes('Timeout'))`
  const idle = runProgram(daemon.path, calls)
  expect(await idle.ended).toBe(0)
  expect(idle.output()).toBe('token-1 ready\nfalse\n')
  // An exception of a listener is an uncaught one of the program, and the others are called.
  const program = `process.on('uncaughtException', () => undefined)
    const failing = tokens.subscribe(() => { throw new Error('mine') })
    const end = tokens.subscribe(({ accessToken }) => {
      console.log(accessToken)
      if (accessToken === 'token-2') { end(); failing() }
    })`
  const subscriber = runProgram(daemon.path, program)
  await holds(() => subscriber.output().includes('token-1'))
  // Through a restart of the daemon, too.
  await daemon.stop()
  await daemon.start()
  await holds(() => daemon.asked.length === 4)
  daemon.publish('token.changed', tokenFields('token-2'))
  expect(await subscriber.ended).toBe(0)
  expect(subscriber.output()).toBe('token-1\ntoken-2\n')
})
