// refresh: has the service asked now, and says how it went.
import { exitStatus, UserError } from '../lib/error.ts'
import { tellDuration } from '../lib/duration.ts'
import type { Reason } from '../token/outcome.ts'
import { remedyFor } from '../token/remedy.ts'
import { ask } from './ask.ts'
import type { RunCommand } from './command.ts'

export const run: RunCommand = async (invocation) => {
  const result = await ask(invocation, (client) => client.refresh())
  if (result.outcome === 'ok') {
    const lifeMs = Date.parse(result.expiresAt ?? '') - Date.now()
    invocation.stdout.write(`New token ${result.fingerprint}, good for ${tellDuration(lifeMs)}.\n`)
    return exitStatus.ok
  }
  const remedy = result.reason === undefined ? undefined : remedyFor(result.reason as Reason)
  const sentences = [`No new token (${result.reason ?? 'no reason given'}): ${result.detail ?? ''}`, remedy]
  if (result.fingerprint !== undefined) sentences.push(`Token ${result.fingerprint} goes on being served`)
  throw new UserError(
    `${sentences.filter((sentence) => sentence !== undefined).join('. ')}.`.replaceAll('..', '.'),
    result.state === 'refused' ? exitStatus.noPermission : exitStatus.tryAgain,
  )
}
