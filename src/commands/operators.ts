// The commands of operators: refresh, reload and alert-test.
import { isFaultName, withCommands } from '../host/remedy.ts'
import { asSentence, escapeUnsafe } from '../lib/display-text.ts'
import { formatDuration } from '../lib/duration.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { permanentReasons, type ReloadResult } from '../protocol.ts'
import { ask, remediesFor } from '../terminal/ask.ts'
import type { RunCommand } from '../terminal/command.ts'

/** Has the service asked now, and says how it went. */
export const refresh: RunCommand = async (invocation) => {
  const [result, before] = await ask(invocation, async (client) => {
    const status = await client.status()
    return [await client.refresh(), status] as const
  })
  const { outcome, candidate, fingerprint, reason = 'stopping', detail = '' } = result
  const ofCandidate = candidate
    ? [
        `The other pair in the files was asked first, and gave no token (${candidate.reason}: ${candidate.detail})`,
      ]
    : []
  if (outcome === 'ok') {
    const isNew = fingerprint !== before.token?.fingerprint
    const words = isNew ? 'New token' : 'The service gave the same token again:'
    const life = formatDuration(Date.parse(result.expiresAt ?? '') - Date.now())
    const lines = [`${words} ${fingerprint}, good for ${life}`, ...ofCandidate]
    invocation.stdout.write(lines.map((line) => `${escapeUnsafe(asSentence(line))}\n`).join(''))
    return exitStatus.ok
  }
  const { remedyOf } = await remediesFor(before.daemon, invocation)
  // A daemon that stops has the remedy in its sentence.
  const remedy = isFaultName(reason) ? remedyOf(reason) : ''
  const served = fingerprint === undefined ? '' : `Token ${fingerprint} is still served`
  const sentences = [`No new token (${reason}): ${detail}`, ...ofCandidate, remedy, served].filter(Boolean)
  const isRefused = permanentReasons.some((permanent) => permanent === reason)
  const status = isRefused ? exitStatus.noPermission : exitStatus.tryAgain
  throw new UserError(sentences.map(asSentence).join(' '), status)
}

const pairs: Readonly<Record<NonNullable<ReloadResult['pair']>, string>> = {
  'in-use': 'The other pair has given a token and is in use',
  refused: 'The service refuses the other pair: the former one stays in use',
  tried: 'The other pair has given no token yet: the former one stays in use, and the other is tried again',
}

/** Has the daemon read its configuration and its secrets again, and says what is in force. */
export const reload: RunCommand = async (invocation) => {
  const { stdout, stderr } = invocation
  const [{ outcome, problems, needsRestart, pair }, daemon] = await ask(invocation, async (client) => {
    const status = await client.status()
    return [await client.reload(), status.daemon] as const
  })
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
    const command = outcome === 'ok' ? (await remediesFor(daemon, invocation)).commands.restart : undefined
    stdout.write(`${asSentence(escapeUnsafe(withCommands(text, command)))}\n`)
  }
  if (outcome === 'ok') return exitStatus.ok
  return pair === 'refused' ? exitStatus.noPermission : exitStatus.tryAgain
}

/** Raises a test alert, which goes the whole way from the log to the operator's command. */
export const alertTest: RunCommand = async (invocation) => {
  const { outcome, resolvesAt, detail } = await ask(invocation, (client) => client.alertTest())
  if (outcome === 'refused') {
    const sentence = `There is no test alert, because another alert is raised: ${detail ?? ''}`
    throw new UserError(asSentence(sentence), exitStatus.tryAgain)
  }
  const sentence = `A test alert is raised, and is over at ${resolvesAt}: see that it reached you.`
  invocation.stdout.write(`${sentence}\n`)
  return exitStatus.ok
}
