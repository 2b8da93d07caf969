// The flags of Node with which systemd starts the daemon.
import { readFileSync } from 'node:fs'

/** Those in `ExecStart=` of this file of `systemd/`. */
export function unitFlags(file = 'kyc-tokend.service'): string[] {
  const unit = readFileSync(new URL(`../../systemd/${file}`, import.meta.url), 'utf8')
  return /^ExecStart=\S+ (.*?) \S+cli\.cjs/m.exec(unit)?.[1]?.split(' ') ?? []
}

/** The settings of malloc in the unit. */
export function unitEnvironment(): Record<string, string> {
  const unit = readFileSync(new URL('../../systemd/kyc-tokend.service', import.meta.url), 'utf8')
  const words = /^Environment=(MALLOC_.*)$/m.exec(unit)?.[1]?.split(' ') ?? []
  return Object.fromEntries(words.map((word) => word.split('=') as [string, string]))
}
