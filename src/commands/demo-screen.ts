// The demo at a terminal: the status as it changes, and keys for outages.
import type { Writable } from 'node:stream'
import type { ReadStream } from 'node:tty'

import { TokenClient } from '../client/index.ts'
import { errorMessage } from '../lib/error.ts'
import type { Sandbox } from '../sandbox/sandbox.ts'
import type { ScenarioName } from '../sandbox/scenarios.ts'
import { watchStatus } from './watch-status.ts'

const START_SECONDS = 30
const KEYS = 'o outage  i inactive account  k all well  r refresh  q end'
const SCENARIOS: Readonly<Record<string, ScenarioName>> = { o: 'outage', i: 'account-inactive', k: 'ok' }
const CTRL_C = '\u0003'

/** Until a key ends it, which aborts `stop`, or `stop` is aborted. */
export async function showDemo(
  parts: {
    socketPath: string
    sandbox: Sandbox
    directory: string
    stdin: ReadStream
    stdout: Writable
    env: NodeJS.ProcessEnv
  },
  stop: AbortController,
): Promise<void> {
  const { socketPath, sandbox, directory, stdin, stdout, env } = parts
  const client = new TokenClient({ socketPath, name: 'demo' })
  const notes: string[] = []
  const refresh = async (): Promise<void> => {
    try {
      await client.refresh({ signal: stop.signal })
    } catch (error) {
      if (!stop.signal.aborted) notes.push(errorMessage(error))
    }
  }
  const onKey = (key: string): void => {
    if (key === 'q' || key === CTRL_C) stop.abort()
    const scenario = SCENARIOS[key]
    if (scenario === undefined && key !== 'r') return
    if (scenario !== undefined) {
      sandbox.become(scenario)
      notes.push(`the service from now on: ${scenario}`)
    }
    void refresh()
  }
  const onKeys = (keys: Buffer): void => {
    for (const key of keys.toString()) onKey(key)
  }
  stdin.setRawMode(true)
  stdin.on('data', onKeys)
  try {
    // The daemon is just starting.
    await client.get({ waitSeconds: START_SECONDS, signal: stop.signal }).catch((error: unknown) => {
      if (!stop.signal.aborted) throw error
    })
    await watchStatus(client, {
      stdout,
      signal: stop.signal,
      hasColour: (env['NO_COLOR'] ?? '') === '' && env['TERM'] !== 'dumb',
      footer: `${KEYS}\nAll of it is in ${directory}; in another terminal: curl -N --unix-socket ${directory}/http.sock http://localhost/v1/token/events`,
      notes: () => notes.splice(0),
    })
  } finally {
    stdin.off('data', onKeys)
    stdin.setRawMode(false)
    stdin.pause()
    client.close()
  }
}
