// Asks systemd about units, and has it act on them, by its own command: drop-ins and defaults are systemd's affair.
import { existsSync } from 'node:fs'
import { join } from 'node:path'

import { SYSTEM_CONFIG_DIRECTORY } from '../lib/paths.ts'
import { runProgram, type Finished } from '../lib/run-program.ts'

/** Of the operator; the same for all accounts. */
export const ALERT_COMMAND = join(SYSTEM_CONFIG_DIRECTORY, 'alert-command')
const SYSTEMD_RUNS = '/run/systemd/system'
const ASK_MS = 10_000
const CREDENTIAL_PROPERTIES = [
  'LoadCredential',
  'LoadCredentialEncrypted',
  'SetCredential',
  'SetCredentialEncrypted',
]

/** The directory of the configuration that the unit of an account reads. */
export function configDirectory(account: string | undefined): string {
  return account === undefined ? SYSTEM_CONFIG_DIRECTORY : join(SYSTEM_CONFIG_DIRECTORY, 'accounts')
}

export type UnitProperties = Readonly<Record<string, string>>

/** Reports whether systemd runs this host. */
export function hasSystemd(): boolean {
  return existsSync(SYSTEMD_RUNS)
}

/** Properties of a unit by name, of all its lines where one has several; null where there is no such unit here. */
export async function unitProperties(unit: string, names: readonly string[]): Promise<UnitProperties | null> {
  if (!hasSystemd()) return null
  const shown = ['LoadState', ...names].flatMap((name) => ['-p', name])
  const { isOk, stdout } = await systemctl(['show', '--timestamp=unix', ...shown, unit])
  const properties = parseProperties(stdout)
  return isOk && properties['LoadState'] === 'loaded' ? properties : null
}

/** Lines of `NAME=VALUE`; the values of a name that is there several times are joined by a blank. */
function parseProperties(text: string): UnitProperties {
  const properties: Record<string, string> = {}
  for (const line of text.split('\n')) {
    const [, name, value = ''] = /(\w+)=(.*)/.exec(line) ?? []
    if (name === undefined) continue
    properties[name] = [properties[name], value].filter((part) => part !== undefined && part !== '').join(' ')
  }
  return properties
}

/** Credentials of a service, with the file of those that are loaded from one; null where systemd does not say. */
export async function unitCredentials(
  service: string,
): Promise<{ id: string; path: string | undefined }[] | null> {
  const escaped = service.replaceAll(
    /[^A-Za-z0-9]/g,
    (character) => `_${character.charCodeAt(0).toString(16).padStart(2, '0')}`,
  )
  // systemctl shows no property that is a list of pairs.
  const words = [
    '--json=short',
    'get-property',
    'org.freedesktop.systemd1',
    `/org/freedesktop/systemd1/unit/${escaped}`,
    'org.freedesktop.systemd1.Service',
    ...CREDENTIAL_PROPERTIES,
  ]
  const { isOk, stdout } = await runProgram('busctl', words, ASK_MS)
  const lines = stdout.trim().split('\n')
  if (!isOk || lines.length !== CREDENTIAL_PROPERTIES.length) return null
  return lines.flatMap((line) =>
    (JSON.parse(line) as { data: [string, unknown][] }).data.map(([id, from]) => ({
      id,
      path: typeof from === 'string' ? from : undefined,
    })),
  )
}

export async function systemctl(words: readonly string[], timeoutMs = ASK_MS): Promise<Finished> {
  return runProgram('systemctl', words, timeoutMs)
}
