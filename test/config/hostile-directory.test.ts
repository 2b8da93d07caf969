import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, existsSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { smallConfig, useConfigFiles } from '../support/config-files.ts'

const files = useConfigFiles()
const program = new URL('../support/print-config.ts', import.meta.url).pathname

/** Settings of cosmiconfig: they would be refused loudly, so whatever reads them shows. */
const settings = { cosmiconfig: { loaders: { '.json': './evil.cjs' }, searchPlaces: ['evil.json'] } }
/** Files by what is in them. */
const snares = {
  run:
    '.config/config.js .config/config.cjs .config/config.ts evil.cjs kyc-tokend.config.js kyc-tokend.config.cjs ' +
    '.kyc-tokendrc.js node_modules/cosmiconfig/index.js node_modules/yaml/index.js node_modules/valibot/index.js',
  runAsModule: '.config/config.mjs kyc-tokend.config.mjs kyc-tokend.config.ts',
  settings: '.config/config.yaml .config/config.json',
  packageSettings: 'package.json package.yaml',
}

const loadIn = (cwd: string, ...args: string[]): string =>
  execFileSync(process.execPath, [program, ...args], {
    cwd,
    encoding: 'utf8',
    env: { RUNTIME_DIRECTORY: '/run/x' },
  })

it.each(Object.entries(snares))('a hostile directory with files that %s changes nothing', (kind, names) => {
  const ran = join(files.directory, 'ran')
  const call = `writeFileSync(${JSON.stringify(ran)}, 'x')`
  const contents: Record<string, string | object> = {
    run: `require('fs').${call}`,
    runAsModule: `import { writeFileSync } from 'fs'; ${call}`,
    settings,
    packageSettings: { cosmiconfig: settings },
  }
  for (const name of names.split(' ')) files.write(join('snare', name), contents[kind]!)
  files.write('snare/.env', 'KYC_TOKEND_CONFIG=evil.json\nNODE_OPTIONS=--require=./evil.cjs\n')
  const [good, snare] = [files.write('good/c.json', smallConfig()), join(files.directory, 'snare')]
  expect(loadIn(snare, good)).toBe(`${good} https://api.example.com\n`)
  expect(loadIn(snare)).toMatch(/there is no configuration file/)
  expect(existsSync(ran)).toBe(false)
})

it.runIf(process.getuid!() === 0)(
  'a person’s search passes over no file that the person may not read',
  () => {
    chmodSync(files.directory, 0o755)
    const other = files.write('kyc-tokend.config.yaml', { ...smallConfig(), baseUrl: 'https://here.example' })
    chownSync(other, 65_533, 65_533)
    const ofPerson = { cwd: files.directory, encoding: 'utf8', env: {}, uid: 65_533, gid: 65_533 } as const
    const load = (): string => execFileSync(process.execPath, [program], ofPerson)
    expect(load()).toBe(`${other} https://here.example\n`)
    files.write('kyc-tokend.config.json', smallConfig())
    expect(load()).toMatch(/config\.json: .*may not be read by the user \w+/)
  },
)
