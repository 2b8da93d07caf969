// The system that the program runs on: its Node, and systemd, which is asked about units by its own commands and hands
// sockets over.
import { existsSync } from 'node:fs'
import { exitStatus, UserError } from '../lib/error.ts'
import { runProgram } from '../lib/run-program.ts'
import { accountOf, installationOf } from './account.ts'
import type { Place } from './remedy.ts'

/** `engines` of package.json: the first without a known hole in TLS or HTTP. */
const FIRST_NODE = '24.18.1'

/** Throws UserError (69) on a Node that is older. */
export function requireSupportedNode(version = process.versions.node): void {
  if (version.localeCompare(FIRST_NODE, 'en', { numeric: true }) >= 0) return
  const message =
    `kyc-tokend needs Node ${FIRST_NODE} or newer, and this is v${version}: ` +
    'install one; in a checkout on x64 `npm ci` brings one, which `npx kyc-tokend` uses.'
  throw new UserError(message, exitStatus.unavailable)
}

const SYSTEMD_RUNS = '/run/systemd/system'
const ASK_MS = 10_000

export type UnitProperties = Readonly<Record<string, string>>

/**
 * Properties of a unit by name; a property with several lines has them joined. `LoadState` is `loaded` or
 * `masked`. Null if there is no such unit, no systemd runs this host, or systemd does not answer; in the
 * last case, with `isNeeded`, throws UserError (69).
 */
export async function unitProperties(
  unit: string,
  names: readonly string[],
  { isNeeded = false } = {},
): Promise<UnitProperties | null> {
  if (!existsSync(SYSTEMD_RUNS)) return null
  const shown = ['LoadState', ...names].flatMap((name) => ['-p', name])
  const { isOk, stdout, stderr } = await runProgram('systemctl', ['show', ...shown, unit], ASK_MS)
  if (!isOk && isNeeded) {
    const message = `systemd does not say whether ${unit} is installed (${firstLine(stderr)}): run this again.`
    throw new UserError(message, exitStatus.unavailable)
  }
  const properties: Record<string, string> = {}
  for (const [, name = '', value = ''] of stdout.matchAll(/^(\w+)=(.*)$/gm))
    properties[name] = `${properties[name] ?? ''} ${value}`.trim()
  return isOk && ['loaded', 'masked'].includes(properties['LoadState'] ?? '') ? properties : null
}

/** systemd's own words about a unit: how it is, and which process ended how; empty: it is not installed. */
export async function unitWords(unit: string): Promise<string> {
  if ((await unitProperties(unit, [])) === null) return ''
  const { stdout } = await runProgram('systemctl', ['status', '--lines=0', '--full', unit], ASK_MS)
  const lines = [...stdout.matchAll(/^ *((?:Active|Process|Status): .*?) *$/gm)]
  return lines.map(([, line]) => line).join('; ')
}

export function firstLine(text: string): string {
  return text.trim().split('\n')[0] ?? ''
}

/** For the commands of remedies about a daemon that answered at this socket; undefined: where commands look for it. */
export async function placeOfDaemon(
  { pid, configFile }: { readonly pid: number; readonly configFile: string },
  socket: string | undefined,
): Promise<Place> {
  const account = accountOf(configFile)
  const service = await unitProperties(`${installationOf(account).unit}.service`, ['MainPID'])
  return { account, isUnit: service?.['MainPID'] === String(pid), pid, configFile, socket }
}

/** The name that systemd gives to the socket of a unit (`FileDescriptorName=`). */
type SocketName = 'ipc' | 'http' | 'metrics'
/** Descriptors that systemd handed over (sd_listen_fds(3)), by the names that its socket units give them, any number of each. */
export type InheritedSockets = Readonly<Record<SocketName, readonly number[]>>

/** SD_LISTEN_FDS_START. */
const FIRST_LISTEN_FD = 3

/** Takes them out of the environment, so that no child uses them. None if LISTEN_PID names another process. */
export function takeInheritedSockets(env: NodeJS.ProcessEnv, pid: number): InheritedSockets {
  const { LISTEN_PID, LISTEN_FDS = '', LISTEN_FDNAMES = '' } = env
  const isOurs = LISTEN_PID === String(pid) && /^\d{1,4}$/.test(LISTEN_FDS)
  const given = LISTEN_FDNAMES.split(':')
  const length = isOurs ? Number(LISTEN_FDS) : 0
  const names = Array.from({ length }, (_, index) => given[index])
  for (const name of ['LISTEN_PID', 'LISTEN_FDS', 'LISTEN_FDNAMES']) Reflect.deleteProperty(env, name)
  const fdsOf = (wanted: SocketName): number[] =>
    names.flatMap((name, index) => (name === wanted ? [FIRST_LISTEN_FD + index] : []))
  return { ipc: fdsOf('ipc'), http: fdsOf('http'), metrics: fdsOf('metrics') }
}

/** Reports whether systemd handed over a socket that is served: the daemon then opens no other. */
export function isSocketActivated({ ipc, http, metrics }: InheritedSockets): boolean {
  return ipc.length + http.length + metrics.length > 0
}

/** The descriptors to listen on; null: systemd handed over none at all, and the socket's path is opened. */
export function descriptorsOf(inherited: InheritedSockets, name: SocketName): readonly number[] | null {
  return isSocketActivated(inherited) ? inherited[name] : null
}
