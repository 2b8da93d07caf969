// refresh: has the service asked now, and says how it went.
import { createRemedies, isNamedFault } from '../host/remedy.ts'
import { placeOfDaemon } from '../host/systemd.ts'
import { formatDuration } from '../lib/duration.ts'
import { asSentence, escapeUnsafe } from '../lib/display-text.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { permanentReasons } from '../protocol.ts'
import { afterFiles, ask, namedSocket } from '../terminal/ask.ts'
import type { RunCommand } from '../terminal/command.ts'

export const run: RunCommand = async (invocation) => {
  const [result, isNew, daemon] = await ask(invocation, async (client) => {
    const before = await client.status()
    const answer = await client.refresh()
    const isOther = answer.fingerprint !== before.token?.fingerprint
    // A file is not written again for the same token.
    if (answer.outcome === 'ok' && isOther) await afterFiles(client, answer.obtainedAt!)
    return [answer, isOther, before.daemon] as const
  })
  const { outcome, candidate, fingerprint, reason = 'stopping', detail = '' } = result
  const ofCandidate = candidate
    ? [
        `The other pair in the files was asked first, and gave no token (${candidate.reason}: ${candidate.detail})`,
      ]
    : []
  if (outcome === 'ok') {
    const words = isNew ? 'New token' : 'The service gave the same token again:'
    const life = formatDuration(Date.parse(result.expiresAt ?? '') - Date.now())
    const lines = [`${words} ${fingerprint}, good for ${life}`, ...ofCandidate]
    invocation.stdout.write(lines.map((line) => `${escapeUnsafe(asSentence(line))}\n`).join(''))
    return exitStatus.ok
  }
  const remedies = createRemedies(await placeOfDaemon(daemon, namedSocket(invocation)))
  // A daemon that stops has the remedy in its sentence.
  const remedy = isNamedFault(reason) ? remedies.remedyOf(reason) : ''
  const served = fingerprint === undefined ? '' : `Token ${fingerprint} is still served`
  const sentences = [`No new token (${reason}): ${detail}`, ...ofCandidate, remedy, served].filter(Boolean)
  const isRefused = permanentReasons.some((permanent) => permanent === reason)
  const status = isRefused ? exitStatus.noPermission : exitStatus.tryAgain
  throw new UserError(sentences.map(asSentence).join(' '), status)
}
