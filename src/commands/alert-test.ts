// alert-test: raises a test alert, which goes the whole way from the log to the operator's command.
import { accountOfConfig, unitNames } from '../host/account.ts'
import { asSentence } from '../lib/display-text.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { ask } from '../terminal/ask.ts'
import type { RunCommand } from '../terminal/command.ts'

export const run: RunCommand = async (invocation) => {
  const [{ outcome, resolvesAt, detail }, daemon] = await ask(invocation, async (client) => {
    const answer = await client.alertTest()
    return [answer, (await client.status()).daemon] as const
  })
  if (outcome === 'refused')
    throw new UserError(
      asSentence(`There is no test alert, because another alert is raised: ${detail ?? ''}`),
      exitStatus.tryAgain,
    )
  const { alertUnit } = unitNames(accountOfConfig(daemon.configFile))
  invocation.stdout.write(
    `A test alert is raised, and is over at ${resolvesAt?.slice(0, 19) ?? ''}Z. See that it reached you: the log, ` +
      `alert.json, and under systemd the alert command (sudo journalctl -u ${alertUnit}).\n`,
  )
  return exitStatus.ok
}
