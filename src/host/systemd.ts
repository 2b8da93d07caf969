// Asks systemd, by its own commands, about units: it knows their drop-ins and defaults.
import { existsSync } from 'node:fs'
import { accountOfConfig, unitNames } from './account.ts'
import { exitStatus, UserError } from '../lib/error.ts'
import { placeAt } from './place.ts'
import type { Place } from './remedy.ts'
import { runProgram } from '../lib/run-program.ts'

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
  const words = ['show', '--timestamp=unix', ...shown, unit]
  const { isOk, stdout, stderr } = await runProgram('systemctl', words, ASK_MS)
  const properties = parseProperties(stdout)
  if (!isOk && isNeeded)
    throw new UserError(
      `systemd does not say whether ${unit} is installed (${firstLine(stderr)}): run this again.`,
      exitStatus.unavailable,
    )
  return isOk && ['loaded', 'masked'].includes(properties['LoadState'] ?? '') ? properties : null
}

/** systemd's own words about a unit: how it is, and which process ended how; empty: it is not installed. */
export async function unitWords(unit: string): Promise<string> {
  if ((await unitProperties(unit, [])) === null) return ''
  return wordsIn((await runProgram('systemctl', ['status', '--lines=0', '--full', unit], ASK_MS)).stdout)
}

/** Those in the output of `systemctl status`. */
export function wordsIn(output: string): string {
  const lines = output.split('\n')
  return lines
    .flatMap((line) => (/^ *(?:Active|Process|Status): /.test(line) ? [line.trim()] : []))
    .join('; ')
}

export function firstLine(text: string): string {
  return text.trim().split('\n')[0] ?? ''
}

/** Parses lines of `NAME=VALUE`; several values of one name are joined by a blank. */
function parseProperties(text: string): UnitProperties {
  const properties: Record<string, string> = {}
  for (const line of text.split('\n')) {
    const [, name, value = ''] = /(\w+)=(.*)/.exec(line) ?? []
    if (name !== undefined) properties[name] = `${properties[name] ?? ''} ${value}`.trim()
  }
  return properties
}

/** For the commands of remedies about a daemon that answers. `socket`: the one that was named. */
export async function placeOfDaemon(
  daemon: { readonly pid: number; readonly configFile: string },
  socket?: string,
): Promise<Place> {
  const { pid, configFile } = daemon
  const { unit } = unitNames(accountOfConfig(configFile))
  const service = await unitProperties(`${unit}.service`, ['MainPID'])
  const isUnit = service?.['MainPID'] === String(pid)
  return placeAt({ configFile, socket }, { isUnit, pid })
}
