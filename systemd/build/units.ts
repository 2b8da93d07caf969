// The units of the package. Those of accounts (`kyc-tokend@.service`) are the source of the default one's.
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'

const units = path.dirname(import.meta.dirname)
/** Words of a unit of an account by which it differs from that of the default account. */
const ACCOUNT = / --account %i|, account %i|\/?accounts\/%i|@(?:NAME|%i)/g
/** A paragraph of the account's units that the default account does not need. */
const ACCOUNT_ALONE = /^# Of accounts alone: [^]*?\n\n/gm

/** The text of each unit by the name of its file. */
export function unitFiles(): Map<string, string> {
  const files = readdirSync(units).filter((file) => /\.(service|socket|path|timer)$/.test(file))
  const texts = files.map((file) => [file, readFileSync(path.join(units, file), 'utf8')] as const)
  const ofAccounts = texts.filter(([, text]) => text.includes(', account %i'))
  return new Map([
    ...texts,
    ...ofAccounts.map(([file, text]) => [file.replace('@', ''), ofDefault(text)] as const),
  ])
}

function ofDefault(text: string): string {
  return text.replaceAll(ACCOUNT_ALONE, '').replaceAll(ACCOUNT, '')
}
