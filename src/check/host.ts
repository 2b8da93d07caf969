// The facts about the host of which `check` makes its findings.
import { existsSync, statSync } from 'node:fs'
import { createConnection } from 'node:net'
import { dirname } from 'node:path'
import type { Config } from '../config/config.ts'
import { installationOf } from '../host/account.ts'
import { idOf } from '../host/ids.ts'
import { ALERT_COMMAND, CLIENTS_GROUP, ownSockets, SERVICE_USER } from '../host/paths.ts'
import { createRemedies, type Place } from '../host/remedy.ts'
import { unitProperties, unitWords, type UnitProperties } from '../host/system.ts'
import { sleep, withTimeout } from '../lib/clock.ts'
import { errorCode, UserError, withSystemFallback } from '../lib/error.ts'
import { runProgram } from '../lib/run-program.ts'
import { ask } from '../terminal/ask.ts'

/** The longest wait for the daemon, and for programs, also those of systeminformation: they may hang. */
const ASK_MS = 10_000
/** A user that is nobody's: below the id that stands for unknown users. */
const MEMBER_UID = 65_533
const PROPERTIES =
  'ActiveState Result UnitFileState NeedDaemonReload User Group Environment SocketGroup'.split(' ')
/** The question of a client at each socket. */
const QUESTIONS = {
  ipc: '{"type":"status.get","data":{"id":"check"}}\f',
  http: 'GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n',
}

export interface Unit {
  /** With its suffix. */
  readonly name: string
  readonly properties: UnitProperties
}

/**
 * Does the work as this user, whose own group is the first; as the present one where that is not root, or nobody is
 * named. No two at a time.
 */
export async function asUser<T>(
  who: { readonly uid: number; readonly groups: readonly [number, ...number[]] } | undefined,
  work: () => Promise<T>,
): Promise<T> {
  if (who === undefined || process.geteuid!() !== 0) return work()
  const before = { groups: process.getgroups!(), gid: process.getegid!() }
  process.setgroups!([...who.groups])
  process.setegid!(who.groups[0])
  process.seteuid!(who.uid)
  try {
    return await work()
  } finally {
    process.seteuid!(0)
    process.setegid!(before.gid)
    process.setgroups!(before.groups)
  }
}

/** Null: it is not installed. Throws UserError (69) if systemd does not tell root. */
export async function unitOf(name: string): Promise<Unit | null> {
  const properties = await unitProperties(name, PROPERTIES, { isNeeded: process.geteuid!() === 0 })
  return properties && { name, properties }
}

export const isMasked = ({ properties }: Unit): boolean => properties['LoadState'] === 'masked'
export const isActive = ({ properties }: Unit): boolean => properties['ActiveState'] === 'active'

/** As rows read them; tests write them down. */
export type HostFacts = Awaited<ReturnType<typeof factsOf>>

/** `config`: null if it is faulty. `service`: null if it is not installed: then facts about units are empty. */
export async function factsOf(
  config: Config | null,
  { service, place }: { service: Unit | null; place: Place },
) {
  const units = service === null ? [] : [service, ...(await otherUnits(config, place))]
  const others = units.slice(1)
  /** Its members use the sockets. */
  const group = service?.properties['Group'] || CLIENTS_GROUP
  const { sockets, status } = await socketFacts(config, { service, group })
  const clock = await output('timedatectl', 'show', '--property=NTPSynchronized', '--value')
  return {
    remedies: createRemedies({ ...place, pid: status?.daemon.pid }),
    service,
    /** The other units of the account that are wanted. */
    others,
    units,
    /** systemd's own words about the service; null: it runs, or cannot. */
    words: service === null || isMasked(service) || isActive(service) ? null : await unitWords(service.name),
    complaints: await complaintsAbout(units.filter((unit) => !isMasked(unit))),
    missing: await missingNames(units),
    mounts: units.length === 0 ? [] : await mountsOver(sockets.map(({ path }) => path)),
    group,
    sockets,
    /** Of a daemon that runs with this configuration; null: none is known to run. */
    status,
    nowMs: Date.now(),
    isClockSynchronised: clock.trim() !== 'no',
    ...(await resources(config)),
  }
}

async function otherUnits(config: Config | null, { account }: Place): Promise<Unit[]> {
  const { sockets, alertUnit } = installationOf(account)
  const wanted = sockets.filter(({ name }) => name === 'ipc' || config?.http !== null).map(({ unit }) => unit)
  const names = existsSync(ALERT_COMMAND) ? [...wanted, `${alertUnit}.path`] : wanted
  return (await Promise.all(names.map(unitOf))).filter((unit) => unit !== null)
}

/** The sockets of the unit, which are above its directory, else the daemon's own, and the daemon that answers there. */
async function socketFacts(
  config: Config | null,
  { service, group }: { service: Unit | null; group: string },
) {
  if (config === null) return { sockets: [], status: null }
  const { runtimeDirectory } = config
  const paths = ownSockets(service === null ? runtimeDirectory : dirname(runtimeDirectory))
  // A question would start a daemon that does not run.
  const isUp = service === null || isActive(service)
  const there = { options: { socket: paths.ipc }, env: {} }
  const answer = isUp ? await ask(there, async (client) => client.status()).catch(nullForUserError) : null
  const status = answer?.daemon.configFile === config.read.file ? answer : null
  const mayAsk = service === null ? status !== null : isUp
  const names = (['ipc', 'http'] as const).filter((name) => config[name] !== null)
  // One after the other: the process acts as a member meanwhile.
  const sockets = await Array.fromAsync(names, async (name) => {
    const path = paths[name]
    const { users, groups } = config[name]!.allow
    /** Everybody may connect, and no daemon says so. */
    const isOpen = status === null && users.length + groups.length === 0
    const isOpenedWide = isOpen && withSystemFallback(false, () => (statSync(path).mode & 0o006) !== 0)
    /** Why a member of the group gets no answer, as a code; null: it gets one; undefined: it was not asked. */
    const unanswered = mayAsk ? await askAsMember(name, path, group) : undefined
    return { path, isOpenedWide, unanswered }
  })
  return { sockets, status }
}

function nullForUserError(error: unknown): null {
  if (error instanceof UserError) return null
  throw error
}

/** Mounts below /run that hide these paths. */
async function mountsOver(paths: readonly string[]): Promise<string[]> {
  const mounts = (await output('findmnt', '-rno', 'TARGET')).split('\n')
  return mounts.filter(
    (mount) => mount.startsWith('/run/') && paths.some((path) => path.startsWith(`${mount}/`)),
  )
}

/** A question as a user with this one group. */
async function askAsMember(name: 'ipc' | 'http', path: string, group: string): Promise<string | null> {
  const gid = idOf('group', group)
  const question = async (): Promise<string | null> =>
    new Promise((resolve) => {
      const socket = createConnection(path)
      const end = (code: string | null): void => {
        resolve(code)
        socket.destroy()
      }
      socket.setTimeout(ASK_MS, () => end('timeout'))
      // Any answer will do: `allow` may name others.
      socket.once('data', () => end(null))
      socket.once('error', (error) => end(errorCode(error) ?? error.message))
      socket.once('close', () => end('closed'))
      socket.write(QUESTIONS[name])
    })
  return asUser(gid === undefined ? undefined : { uid: MEMBER_UID, groups: [gid] }, question)
}

/** The findings of systemd about files of these units, such as a drop-in that it does not understand. */
async function complaintsAbout(units: readonly Unit[]): Promise<string[]> {
  if (units.length === 0) return []
  const words = await output('systemd-analyze', 'verify', '--man=no', ...units.map(({ name }) => name))
  return words.split('\n').filter((line) => line.includes('kyc-tokend'))
}

/** Users and groups of the units that are not there. */
async function missingNames(units: readonly Unit[]): Promise<string[]> {
  const wanted = units.flatMap(({ properties: { User, Group, SocketGroup } }) => [
    ['passwd', User],
    ...[SERVICE_USER, CLIENTS_GROUP, Group, SocketGroup].map((name) => ['group', name]),
  ])
  const missing = new Set<string>()
  // systemd gives an empty name for none.
  for (const [database = '', name] of wanted)
    if (name && !(await output('getent', database, name)).startsWith(`${name}:`)) missing.add(name)
  return [...missing]
}

/** The memory, and the file systems to which the daemon writes, in bytes. */
async function resources(config: Config | null) {
  const { default: system } = await import('systeminformation')
  const asked = Promise.all([system.fsSize(), system.mem()]).catch(() => undefined)
  const [fileSystems, memory] = (await withTimeout(ASK_MS, asked, { sleep })) ?? [[], undefined]
  const files = config?.tokenFiles.map(({ path }) => dirname(path)) ?? []
  const directories = config === null ? [] : [config.runtimeDirectory, config.stateDirectory, ...files]
  const nearest = directories.flatMap((directory) => {
    const above = fileSystems.filter(({ mount }) => `${directory}/`.startsWith(mount.replace(/\/?$/, '/')))
    return above.toSorted((one, other) => other.mount.length - one.mount.length).slice(0, 1)
  })
  const disks = [...new Set(nearest)].map(({ mount, available }) => ({ mount, available }))
  return { disks, memory: memory?.available ?? Infinity }
}

/** The output of a program of the system; empty if it cannot be run. */
async function output(program: string, ...words: readonly string[]): Promise<string> {
  const { stdout, stderr } = await runProgram(program, words, ASK_MS)
  return stdout || stderr
}
