// refresh: has the service asked now, and says how it went.
import { exitStatus, UserError } from '../lib/error.ts'
import { tellDuration } from '../lib/duration.ts'
import type { Reason } from '../token/outcome.ts'
import { remedyFor } from '../token/remedy.ts'
import { ask } from './ask.ts'
import type { RunCommand } from './command.ts'

/** Reasons after which the service is not asked again by itself (contract, section 4). */
const REFUSALS = new Set<string>(['account-inactive', 'account-not-found'] satisfies Reason[])

export const run: RunCommand = async (invocation) => {
  const result = await ask(invocation, (client) => client.refresh())
  if (result.outcome === 'ok') {
    const lifeMs = Date.parse(result.expiresAt ?? '') - Date.now()
    invocation.stdout.write(`New token ${result.fingerprint}, good for ${tellDuration(lifeMs)}.\n`)
    return exitStatus.ok
  }
  const remedy = result.reason === undefined ? undefined : remedyFor(result.reason as Reason)
  const sentences = [`No new token (${result.reason ?? 'stopping'}): ${result.detail ?? ''}`]
  if (remedy !== undefined) sentences.push(remedy)
  if (result.fingerprint !== undefined) sentences.push(`Token ${result.fingerprint} goes on being served`)
  throw new UserError(
    sentences.map((sentence) => `${sentence.replace(/\.$/, '')}.`).join(' '),
    REFUSALS.has(result.reason ?? '') ? exitStatus.noPermission : exitStatus.tryAgain,
  )
}
