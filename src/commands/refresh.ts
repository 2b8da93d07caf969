// refresh: has the service asked now, and says how it went.
import { asSentence, escapeUnsafe } from '../lib/display-text.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { formatDuration } from '../lib/duration.ts'
import { remedyIfKnown } from '../host/place-commands.ts'
import { permanentReasons } from '../protocol.ts'
import { afterFiles, ask, namedSocket } from '../terminal/ask.ts'
import type { RunCommand } from '../terminal/command.ts'
import { placeOfDaemon } from '../host/systemd.ts'

/** The daemon ended before the attempt did, and its sentence has the remedy. */
const STOPPING = 'stopping'

export const run: RunCommand = async (invocation) => {
  const [result, isNew, daemon] = await ask(invocation, async (client) => {
    const { token, daemon: asked } = await client.status()
    const answer = await client.refresh()
    const isOther = answer.fingerprint !== token?.fingerprint
    // A file is not written again for the same token.
    if (answer.outcome === 'ok' && isOther) await afterFiles(client, answer.obtainedAt!)
    return [answer, isOther, asked] as const
  })
  if (result.outcome === 'ok') {
    const life = formatDuration(Date.parse(result.expiresAt ?? '') - Date.now())
    const words = isNew ? 'New token' : 'The service gave the same token again:'
    invocation.stdout.write(`${words} ${result.fingerprint}, good for ${life}.\n`)
    if (result.candidate)
      invocation.stdout.write(`${escapeUnsafe(asSentence(candidateInWords(result.candidate)))}\n`)
    return exitStatus.ok
  }
  const { reason = STOPPING, detail = '' } = result
  const sentences = [`No new token (${reason}): ${detail}`]
  if (result.candidate) sentences.push(candidateInWords(result.candidate))
  const remedy =
    reason === STOPPING ? '' : remedyIfKnown(reason, await placeOfDaemon(daemon, namedSocket(invocation)))
  if (remedy !== '') sentences.push(remedy)
  if (result.fingerprint !== undefined) sentences.push(`Token ${result.fingerprint} is still served`)
  const isRefused = permanentReasons.some((permanent) => permanent === reason)
  const status = isRefused ? exitStatus.noPermission : exitStatus.tryAgain
  throw new UserError(sentences.map(asSentence).join(' '), status)
}

function candidateInWords({ reason, detail }: { reason: string; detail: string }): string {
  return `The other pair in the files was asked first, and gave no token (${reason}: ${detail})`
}
