// alert-test: rehearses an alert through the whole way, from the log to the operator's command.
import { accountOfConfig, unitNames } from '../host/account.ts'
import { asSentence } from '../lib/display-text.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { ask } from '../terminal/ask.ts'
import type { RunCommand } from '../terminal/command.ts'
import { systemdStateOf } from '../host/alert-command.ts'

export const run: RunCommand = async (invocation) => {
  const { outcome, resolvesAt, detail, daemon } = await ask(invocation, async (client) => ({
    ...(await client.alertTest()),
    daemon: (await client.status()).daemon,
  }))
  if (outcome === 'refused')
    throw new UserError(
      asSentence(`There is no test alert, because another alert is raised: ${detail ?? ''}`),
      exitStatus.tryAgain,
    )
  const { isUnit, alertProblem } = await systemdStateOf(daemon)
  const { alertUnit } = unitNames(accountOfConfig(daemon.configFile))
  const places =
    isUnit && alertProblem === null ? ` and the alert command (sudo journalctl -u ${alertUnit})` : ''
  invocation.stdout.write(
    `A test alert is raised, and is over at ${resolvesAt?.slice(0, 19) ?? ''}Z. ` +
      `See that it reached you: the log, alert.json${places}.\n`,
  )
  if (alertProblem !== null) throw new UserError(asSentence(alertProblem), exitStatus.configuration)
  return exitStatus.ok
}
