import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { onTestFinished, expect, test } from 'vitest'
import { PROGRAM } from '../support/daemon.ts'
import { expectUntil } from '../support/until.ts'

function startDemo(): { text: () => string; interrupt: () => Promise<number | null> } {
  const [node, program] = PROGRAM
  const child = spawn(node, [program, 'demo'], { stdio: ['ignore', 'pipe', 'pipe'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  let text = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
  }
  return {
    text: () => text,
    async interrupt() {
      child.kill('SIGINT')
      const [code] = (await once(child, 'exit')) as [number | null]
      return code
    },
  }
}

test('the demo shows what to try and each token as it comes, and leaves nothing behind', async () => {
  const demo = startDemo()
  const directory = await expectUntil('what to try', () => / both in (\S+)\.$/m.exec(demo.text())?.[1])
  await expectUntil('a first token', () => / token 1 \([0-9a-f]{16}\) is good until /.test(demo.text()))
  for (const name of ['token', 'ipc.sock', 'http.sock']) {
    expect(demo.text()).toContain(`${directory}/${name}`)
    await expectUntil(name, () => existsSync(`${directory}/${name}`))
  }
  expect(await demo.interrupt()).toBe(0)
  expect(existsSync(directory)).toBe(false)
})

test('what the daemon of the demo warns of is shown', async () => {
  const demo = startDemo()
  const { url } = await expectUntil(
    'what to try',
    () => / -d outage (?<url>http:\S+)\/scenario$/m.exec(demo.text())?.groups as { url: string } | undefined,
  )
  await expectUntil('a first token', () => / token 1 /.test(demo.text()))
  await fetch(`${url}/scenario`, { method: 'PUT', body: 'account-inactive' })
  await expectUntil('the alert', () =>
    /account-inactive/.test(demo.text().split('Tokens as they come')[1] ?? ''),
  )
  expect(await demo.interrupt()).toBe(0)
})

test('the lines that the demo shows work as they stand', async () => {
  const demo = startDemo()
  await expectUntil('a first token', () => / token 1 /.test(demo.text()))
  const directory = / both in (\S+)\.$/m.exec(demo.text())?.[1] ?? ''
  await expectUntil('the token file', () => existsSync(`${directory}/token`))
  const lines = ['the token file', 'over ipc.sock', 'over http.sock'].map(
    (name) => new RegExp(`^  ${name} +(.*)$`, 'm').exec(demo.text())?.[1] ?? '',
  )
  const answers = await Promise.all(lines.map(async (line) => outputOf(line)))
  const [file = '', ipc = '', http = ''] = answers
  expect(file).toMatch(/^[\w.-]+$/)
  expect(JSON.parse(ipc.slice(0, -1))).toMatchObject({
    type: 'token.result',
    data: { id: '1', accessToken: file },
  })
  expect(JSON.parse(http)).toMatchObject({ accessToken: file })
  expect(await demo.interrupt()).toBe(0)
})

async function outputOf(line: string): Promise<string> {
  const child = spawn('sh', ['-c', line], { stdio: ['ignore', 'pipe', 'ignore'] })
  let text = ''
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
  await once(child, 'close')
  return text
}

test('at a terminal it shows state, life and events, and keys change the service', async () => {
  const command = [...PROGRAM, 'demo'].map((word) => `'${word}'`).join(' ')
  const terminal = spawn('script', ['-qefc', `exec ${command}`, '/dev/null'], {
    env: { ...process.env, TERM: 'xterm', NO_COLOR: '1' },
  })
  onTestFinished(() => void terminal.kill('SIGKILL'))
  let screen = ''
  terminal.stdout.setEncoding('utf8').on('data', (chunk: string) => (screen += chunk))
  const ended = once(terminal, 'close')
  const steps: [RegExp, string][] = [
    [/● ready: [^]*life +█[^]*token 1 \([^]*o outage {2}i inactive/, 'o'],
    [/● degraded: [^]*from now on: outage[^]*failed: server-error/, 'i'],
    [/● refused: [^]*alert raised: account-inactive/, 'k'],
    [/● ready: [^]*alert over: account-inactive[^]*token 2 /, 'q'],
  ]
  for (const [seen, key] of steps) {
    await expectUntil(String(seen), () => seen.test(screen))
    screen = ''
    terminal.stdin.write(key)
  }
  expect(await ended).toEqual([0, null])
  terminal.stdin.end()
})

test('at a terminal it has colours, unless NO_COLOR is set', async () => {
  const { NO_COLOR: _, ...env } = process.env
  const command = [...PROGRAM, 'demo'].map((word) => `'${word}'`).join(' ')
  const terminal = spawn('script', ['-qefc', `exec ${command}`, '/dev/null'], {
    env: { ...env, TERM: 'xterm' },
  })
  onTestFinished(() => void terminal.kill('SIGKILL'))
  let screen = ''
  terminal.stdout.setEncoding('utf8').on('data', (chunk: string) => (screen += chunk))
  const ended = once(terminal, 'close')
  await expectUntil('the state', () => screen.includes('ready'))
  expect(screen).toContain('\u001b[32m●')
  terminal.stdin.write('q')
  expect(await ended).toEqual([0, null])
  terminal.stdin.end()
})
