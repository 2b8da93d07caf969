// reload: has the daemon read its configuration and its secrets again, and says what is in force.
import { createRemedies, rendered } from '../host/remedy.ts'
import { placeOfDaemon } from '../host/systemd.ts'
import { asSentence, escapeUnsafe } from '../lib/display-text.ts'
import { exitStatus } from '../lib/error.ts'
import type { ReloadResult } from '../protocol.ts'
import { ask, namedSocket } from '../terminal/ask.ts'
import type { RunCommand } from '../terminal/command.ts'

const pairs: Readonly<Record<NonNullable<ReloadResult['pair']>, string>> = {
  'in-use': 'The other pair has given a token and is in use',
  refused: 'The service refuses the other pair: the former one stays in use',
  tried: 'The other pair has given no token yet: the former one stays in use, and the other is tried again',
}

export const run: RunCommand = async (invocation) => {
  const { stdout, stderr } = invocation
  const [result, daemon] = await ask(invocation, async (client) => {
    const status = await client.status()
    return [await client.reload(), status.daemon] as const
  })
  const { outcome, problems, needsRestart, pair } = result
  for (const problem of problems) stderr.write(`${escapeUnsafe(problem)}\n`)
  if (outcome === 'faulty') {
    stderr.write('The configuration was not taken over: the running one stays.\n')
    return exitStatus.configuration
  }
  stdout.write('The configuration was read again and is in force.\n')
  if (pair !== null) stdout.write(`${pairs[pair]}.\n`)
  if (needsRestart.length > 0) {
    const text = `Not in force: ${needsRestart.join(' and ')}, which can be changed by a restart alone`
    // A restart would use a pair that gives no token.
    const isSafe = outcome === 'ok'
    const { restart } = createRemedies(await placeOfDaemon(daemon, namedSocket(invocation))).commands
    stdout.write(`${asSentence(escapeUnsafe(rendered({ text, commands: isSafe ? restart : [] })))}\n`)
  }
  if (outcome === 'ok') return exitStatus.ok
  return pair === 'refused' ? exitStatus.noPermission : exitStatus.tryAgain
}
