// Next steps for a person, the most important first, with each command as it is typed on this host.
import { asSentence } from '../lib/display-text.ts'
import type { StatusResult } from '../protocol.ts'
import type { PostponedReason, Reason } from '../token/outcome.ts'
import { remedyFor } from '../token/remedy.ts'
import type { HostFacts } from './host-facts.ts'

/** Reasons that mistakes in the key or the secret have, too. */
const OF_CREDENTIALS = new Set(['account-not-found', 'rejected'])

/** Sentences with a full stop; none if all is well. */
export function nextSteps(status: StatusResult, { unit }: Pick<HostFacts, 'unit'>): string[] {
  const { alert, failure, files, daemon } = status
  const steps: string[] = []
  if (alert !== null) steps.push(alert.remedy)
  else if (failure !== null) steps.push(remedyFor(failure.reason as Reason | PostponedReason))
  const reason = failure?.reason ?? alert?.reason
  if (reason !== undefined) steps.push(...keyMistakes(reason))
  if (alert?.contact) steps.push(`Call ${alert.contact}`)
  const { state } = daemon.configuration
  if (state === 'faulty')
    steps.push('Correct the configuration (`kyc-tokend check` names each fault), then reload (SIGHUP)')
  if (state === 'changed') steps.push('Have the changed configuration taken over: reload (SIGHUP)')
  const faulty = files.filter(({ ok }) => !ok).length
  if (faulty > 0)
    steps.push(`Correct ${faulty === 1 ? 'the token file' : `the ${faulty} token files`} marked ✗`)
  if (daemon.stateProblem) steps.push(`The state for a restart cannot be saved: ${daemon.stateProblem}`)
  return steps.map((step) => asSentence(asTyped(step, { unit, pid: daemon.pid })))
}

/** Mistakes that people make with keys, where the service answers as to one of them. */
export function keyMistakes(reason: string): string[] {
  if (!OF_CREDENTIALS.has(reason)) return []
  return [
    '`kyc-tokend check` finds mistakes with keys: quotes or blanks around one, NAME= before it, the endpoint in `baseUrl`',
  ]
}

/** The sentence with the commands for this host: systemd's, or a signal to the process. */
function asTyped(step: string, { unit, pid }: { unit: string | null; pid: number }): string {
  const account = unit?.split('@')[1]
  const words = account === undefined ? '' : ` --account ${account}`
  const sudo = unit === null ? '' : 'sudo '
  const reload = unit === null ? `kill -HUP ${pid}` : `sudo systemctl reload ${unit}`
  return step
    .replaceAll('reload (SIGHUP)', `\`${reload}\``)
    .replaceAll(/`kyc-tokend (check|refresh|status)([^`]*)`/g, `\`${sudo}kyc-tokend $1${words}$2\``)
}
