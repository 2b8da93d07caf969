// The host as the rows of `check` ask it.
import { statSync } from 'node:fs'
import { dirname } from 'node:path'
import type { Config } from '../config/config.ts'
import { socketUnits, unitNames } from '../host/account.ts'
import { idOf } from '../host/ids.ts'
import { ALERT_COMMAND, ownSockets } from '../host/paths.ts'
import { createRemedies, type Place } from '../host/remedy.ts'
import { isAbsent } from '../host/system-config.ts'
import { unitProperties } from '../host/systemd.ts'
import { sleep, withTimeout } from '../lib/clock.ts'
import { withSystemFallback } from '../lib/error.ts'
import { runProgram } from '../lib/run-program.ts'
import { statusIfAny } from '../terminal/ask.ts'
import { asUser, memberOf, whyUnanswered } from './as-user.ts'
import type { Host, Unit } from './host-rows.ts'

/** The longest wait for programs, also those of systeminformation: on a broken host they may hang. */
const ASK_MS = 10_000
const PROPERTIES =
  'ActiveState Result UnitFileState NeedDaemonReload User Group Environment SocketGroup'.split(' ')

/** Null: it is not installed. Throws UserError (69) if systemd does not tell root. */
export async function unitOf(name: string, path?: string): Promise<Unit | null> {
  const properties = await unitProperties(name, PROPERTIES, { isNeeded: process.geteuid!() === 0 })
  return properties && { name, properties, path }
}

/** `config`: null if it is faulty. */
export async function createHost(
  config: Config | null,
  { service, place }: { service: Unit | null; place: Place },
): Promise<Host> {
  const { account } = place
  const wanted = socketUnits(account).filter(
    ({ name }) => name === 'ipc' || (name === 'http' && config?.http !== null),
  )
  const asked = wanted.map(async ({ unit, path }) => unitOf(unit, path ?? undefined))
  if (!isAbsent(ALERT_COMMAND)) asked.push(unitOf(`${unitNames(account).alertUnit}.path`))
  const others = service === null ? [] : (await Promise.all(asked)).filter((unit) => unit !== null)
  const sockets = (['ipc', 'http'] as const).flatMap((name) => {
    const settings = config?.[name] ?? null
    if (settings === null) return []
    const ofUnit = service && wanted.find((each) => each.name === name)?.path
    const { uids, gids } = settings.allow
    return {
      name,
      path: ofUnit ?? ownSockets(config!.runtimeDirectory)[name],
      isOpen: uids.length + gids.length === 0,
    }
  })
  // A question would start a daemon that does not run.
  const mayAsk = service === null || service.properties['ActiveState'] === 'active'
  const status = mayAsk && sockets[0] !== undefined ? await statusIfAny(sockets[0].path) : null
  const inTime = async <T>(question: Promise<T>): Promise<T | undefined> =>
    withTimeout(
      ASK_MS,
      question.catch(() => undefined),
      { sleep },
    )
  const information = async () => (await import('systeminformation')).default
  const known = status?.daemon.configFile === config?.read.file ? status : null
  return {
    remedies: createRemedies({ ...place, pid: known?.daemon.pid }),
    service,
    others,
    sockets,
    status: known,
    directories:
      config === null
        ? []
        : [
            config.runtimeDirectory,
            config.stateDirectory,
            ...config.tokenFiles.map(({ path }) => dirname(path)),
          ],
    nowMs: Date.now(),
    async run(program, ...words) {
      const { stdout, stderr } = await runProgram(program, words, ASK_MS)
      return stdout || stderr
    },
    stat: (path) => withSystemFallback(null, () => statSync(path)),
    async askAsMember({ name, path }, group) {
      const gid = await idOf('group', group)
      return asUser(gid === undefined ? undefined : memberOf(gid), async () => whyUnanswered(name, path))
    },
    space: async () => inTime((await information()).fsSize()),
    memory: async () => (await inTime((await information()).mem()))?.available,
  }
}
