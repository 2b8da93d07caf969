// The example all-settings.yaml: every setting with its meaning, its type and its default, from the schema.
import { wrap } from '../../src/lib/display-text.ts'
import { depthOf, sectionsToOpen, settingRows, type SettingRow } from './setting-rows.ts'

/** Values of settings that have no default, and of those whose default is of no use as an example. */
const EXAMPLES: Readonly<Record<string, string>> = {
  baseUrl: 'https://api.example.com',
  'credentials.apiKey': '{ file: api-key }',
  'credentials.apiSecret': '{ file: api-secret }',
  'request.clientCertificate.certFile': 'client.pem',
  'request.clientCertificate.key': '{ file: client.key }',
  'request.proxy.url': 'http://proxy.example.com:3128',
  'tokenFiles[].path': 'token',
  'tokenFiles[].mode': '"0640"',
  'service.refusals[].status': '403',
  'service.refusals[].says': 'application is disabled',
  'service.refusals[].reason': 'account-inactive',
  'service.assertion.key': '{ file: assertion.pem }',
  'share.servers': '["redis.example.com:6379"]',
  'share.sentinel.name': 'mymaster',
}
/** Sections that are null or off by default: they are commented out. */
const OFF = ['request.clientCertificate', 'request.proxy', 'service', 'share']
const WIDTH = 100

const isBelow = (key: string, section: string): boolean => key.startsWith(`${section}.`)

/** The file as text. A line of a section that is off begins with `#` and no blank: remove that to turn it on. */
export function wholeConfig(): string {
  const rows = settingRows()
  const lines = [
    '# Every setting of kyc-tokend, with its default; made from the schema. See kyc-tokend.config(5).',
    '# Remove a "#" that no blank follows to turn a setting on.',
  ]
  const opened = new Set<string>()
  for (const row of rows) lines.push('', ...linesOf(row, rows, opened))
  return `${lines.join('\n')}\n`
}

function linesOf(row: SettingRow, rows: readonly SettingRow[], opened: Set<string>): string[] {
  const { key, type, default: standard, meaning } = row
  const isOff = OFF.some((section) => key === section || isBelow(key, section))
  const mark = isOff ? '#' : ''
  const lines = sectionsToOpen(key, rows, opened).map((section) =>
    section.replace(/\w+/, (name) => `${mark}${name}:`),
  )
  const isEntry = key.includes('[]')
  const indent = '  '.repeat(depthOf(key) + (isEntry ? 1 : 0))
  const what = `${meaning} (${type}${standard === undefined ? '; required' : `; default ${standard}`})`
  lines.push(...wrap(what.replaceAll('`', ''), WIDTH - indent.length).map((line) => `${indent}# ${line}`))
  const name = key.split('.').at(-1)!.replace('[]', '')
  const hasOwn = rows.some((other) => isBelow(other.key, key) || other.key.startsWith(`${key}[].`))
  const isFirst = isEntry && rows.find((other) => other.key.startsWith(`${key.split('[]')[0]}[].`)) === row
  const lead = isFirst ? `${indent.slice(2)}${mark}- ` : `${indent}${mark}`
  const value = hasOwn ? '' : ` ${EXAMPLES[key] ?? standard ?? 'null'}`
  return [...lines, `${lead}${name}:${value}`]
}
