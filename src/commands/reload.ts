// reload: has the daemon read its configuration and its secrets again, and says what is in force. As ExecReload=
// of the unit it never fails for what may pass, and falls back to SIGHUP where nobody answers.
import { placeOfDaemon } from '../host/systemd.ts'
import { accountOfConfig } from '../host/account.ts'
import { commandsAt, remedy, rendered, unitPlace, type Place } from '../host/place-commands.ts'
import { asSentence, escapeUnsafe } from '../lib/display-text.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import type { ReloadResult, StatusResult } from '../protocol.ts'
import { ask, namedSocket } from '../terminal/ask.ts'
import type { Invocation, RunCommand } from '../terminal/command.ts'

/** By a former daemon, which does not know the request, or by one that does not answer. */
const UNANSWERED: ReadonlySet<number> = new Set([exitStatus.usage, exitStatus.unavailable])

const settled = {
  'in-use': 'The other pair has given a token and is in use',
  refused: 'The service refuses the other pair: the former one stays in use',
  tried: 'The other pair has given no token yet: the former one stays in use, and the other is tried again',
}

export const run: RunCommand = async (invocation) => {
  const { stdout, stderr, env } = invocation
  const mainPid = /^[1-9]\d*$/.test(env['MAINPID'] ?? '') ? Number(env['MAINPID']) : null
  const asked = await askForReload(invocation).catch((error: unknown) => {
    if (mainPid === null || !(error instanceof UserError) || !UNANSWERED.has(error.status)) throw error
    process.kill(mainPid, 'SIGHUP')
    return null
  })
  if (asked === null) {
    stdout.write(
      'The daemon does not answer at its socket: it was sent SIGHUP, and its log has the result.\n',
    )
    return exitStatus.ok
  }
  const { result, daemon } = asked
  const { outcome, problems, needsRestart, pair } = result
  for (const problem of problems) stderr.write(`${escapeUnsafe(problem)}\n`)
  if (outcome === 'faulty') {
    stderr.write('The configuration was not taken over: the running one stays.\n')
    return exitStatus.configuration
  }
  stdout.write('The configuration was read again and is in force.\n')
  if (pair !== null && Object.hasOwn(settled, pair)) stdout.write(`${settled[pair]}.\n`)
  if (needsRestart.length > 0) {
    const names = needsRestart.join(' and ')
    const text = `Not in force: ${names}, which can be changed by a restart alone`
    // A restart would use a pair that gives no token.
    const commands = outcome === 'ok' ? commandsAt('restart', await placeForRestart(daemon, invocation)) : []
    stdout.write(`${asSentence(escapeUnsafe(rendered(remedy(text, ...commands))))}\n`)
  }
  return statusOf(result, { isOfUnit: mainPid !== null })
}

/** Within the sandbox of the unit no other program can be run. */
async function placeForRestart(daemon: StatusResult['daemon'], invocation: Invocation): Promise<Place> {
  if (invocation.env['MAINPID'] !== undefined) return unitPlace(accountOfConfig(daemon.configFile))
  return placeOfDaemon(daemon, namedSocket(invocation))
}

async function askForReload(invocation: Invocation) {
  return ask(invocation, async (client) => {
    const { daemon } = await client.status()
    return { result: await client.reload(), daemon }
  })
}

function statusOf({ outcome, pair }: ReloadResult, { isOfUnit }: { isOfUnit: boolean }): number {
  if (outcome === 'ok') return exitStatus.ok
  if (pair === 'refused') return exitStatus.noPermission
  return isOfUnit ? exitStatus.ok : exitStatus.tryAgain
}
