// Records the picture of README.md: runs `npm start`, the outage line that it prints, and `status`; writes recording.svg.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { terminalSvg, type TerminalLine } from './terminal-svg.ts'

const OUTPUT = new URL('recording.svg', import.meta.url)
/** The pauses of the picture, in ms: between two lines, and before a command is typed. */
const LINE_MS = 60
const COMMAND_MS = 1_500

const demo = spawn('npm', ['start'], { stdio: ['ignore', 'pipe', 'inherit'], detached: true })
let printed = ''
demo.stdout.setEncoding('utf8').on('data', (text: string) => (printed += text))
try {
  await until('two tokens', () => /^\S+ +token 2 .*\n/m.test(printed))
  const introduction = printed
  const outage = commandAfter('an outage')
  const status = commandAfter('how it is')
  const answer = inTerminal(outage)
  await until('the outage in the status', () => inTerminal(status).includes('degraded'))
  writeFileSync(
    OUTPUT,
    terminalSvg(
      timed([
        ['npm start', introduction],
        [outage, answer],
        [status, inTerminal(status)],
      ]),
    ),
  )
} finally {
  if (demo.pid !== undefined && demo.exitCode === null) {
    process.kill(-demo.pid, 'SIGINT')
    await once(demo, 'exit')
  }
}

function timed(steps: readonly (readonly [command: string, output: string])[]): TerminalLine[] {
  let atMs = 0
  const line = (text: string, pauseMs: number): TerminalLine => {
    const shown = { text: text.replaceAll(hostname(), 'host-a'), atMs }
    atMs += pauseMs
    return shown
  }
  return steps.flatMap(([command, output]) => {
    atMs += COMMAND_MS
    const lines = output.replace(/^\n+/, '').trimEnd().split('\n')
    return [
      line(`\u001b[1m$ ${command}\u001b[0m`, COMMAND_MS),
      ...lines.map((text) => line(text, LINE_MS)),
      line('', 0),
    ]
  })
}

/** The command in the introduction's line with these words. */
function commandAfter(words: string): string {
  const command = new RegExp(`^ *${words} +(.+)$`, 'm').exec(printed)?.[1]
  if (command === undefined) throw new Error(`npm start prints no line "${words}"`)
  return command
}

/** Output and errors of a command that believes to be in a terminal. */
function inTerminal(command: string): string {
  const { stdout } = spawnSync('script', ['--quiet', '--return', '--command', command, '/dev/null'], {
    encoding: 'utf8',
  })
  return stdout.replaceAll('\r', '')
}

async function until(condition: string, isTrue: () => boolean): Promise<void> {
  for (let seconds = 0; !isTrue(); seconds += 1) {
    if (seconds === 60) throw new Error(`Waited a minute for ${condition}:\n${printed}`)
    await sleep(1_000)
  }
}
