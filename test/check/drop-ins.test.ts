import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { dropInFindings, settingsIn } from '../../src/check/check-drop-ins.ts'
import { tempDirectory } from '../support/temp-directory.ts'

test.each<[lines: string[], named: string[]]>([
  [['LimitNOFILE=20'], ['LimitNOFILE=20']],
  [['LimitNOFILE=255:4096'], ['LimitNOFILE=255:4096']],
  [['LimitNOFILE=256', 'LimitNOFILE=infinity', 'LimitNOFILE=1K'], []],
  [[' User = root '], ['User=root']],
  [['User=root', 'User=kyc-tokend'], []],
  [
    ['Group=users', 'DynamicUser=yes', 'PrivateNetwork=true', 'RuntimeDirectory=x'],
    ['Group=users', 'DynamicUser=yes', 'PrivateNetwork=true', 'RuntimeDirectory=x'],
  ],
  [['PrivateNetwork=no', 'RuntimeDirectory=', 'Environment=A=1', '# User=root'], []],
  [
    ['ReadOnlyPaths=/run', 'ReadOnlyPaths=/srv -/var/lib/kyc-tokend'],
    ['ReadOnlyPaths=/run', 'ReadOnlyPaths=/srv -/var/lib/kyc-tokend'],
  ],
  [['InaccessiblePaths=/etc/kyc-tokend', 'InaccessiblePaths=/home'], ['InaccessiblePaths=/etc/kyc-tokend']],
  // An empty value ends a list and sets back a name.
  [['ReadOnlyPaths=/run', 'ReadOnlyPaths='], []],
  [['ReadOnlyPaths=/run', 'ReadOnlyPaths=', 'ReadOnlyPaths=/var'], ['ReadOnlyPaths=/var']],
  [['Group=users', 'Group='], []],
  [['User='], ['User=']],
  // Of others it is ignored.
  [['LimitNOFILE=20', 'LimitNOFILE='], ['LimitNOFILE=20']],
  [['PrivateNetwork=yes', 'PrivateNetwork='], ['PrivateNetwork=yes']],
])('of the drop-ins %j these keep the daemon from its work: %j', async (lines, named) => {
  const directory = await tempDirectory()
  const files = lines.map((line, index) => {
    const file = join(directory, `${index}.conf`)
    writeFileSync(file, `[Service]\n${line}\n`)
    return file
  })
  const found = dropInFindings(settingsIn(files.join(' ')))
  expect(found.map(({ level, sentence }) => [level, / has (.*?): /.exec(sentence)?.[1]])).toEqual(
    named.map((text) => ['fault', text]),
  )
})
