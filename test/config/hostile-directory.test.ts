import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, existsSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'

import { serviceEnv, smallConfig, useConfigFiles } from '../support/config-files.ts'

const files = useConfigFiles()
const program = new URL('../support/print-config.ts', import.meta.url).pathname

const run = (): string => `require('fs').writeFileSync(${JSON.stringify(join(files.directory, 'run'))}, 'x')`
const runAsModule = (): string =>
  `import{writeFileSync}from'fs';writeFileSync(${JSON.stringify(join(files.directory, 'run'))},'x')`
/** Settings of cosmiconfig: they would be refused loudly, so whatever reads them shows. */
const settings = { cosmiconfig: { loaders: { '.json': './evil.cjs' }, searchPlaces: ['evil.json'] } }

/** Attacks by a working directory. */
const snares: Record<string, () => Record<string, string | object>> = {
  'code in .config': () => ({
    ...each(['.config/config.js', '.config/config.cjs', '.config/config.ts'], run()),
    '.config/config.mjs': runAsModule(),
  }),
  'settings in .config': () => each(['.config/config.yaml', '.config/config.json'], settings),
  'package files': () => ({
    'package.json': { cosmiconfig: settings, 'kyc-tokend': smallConfig() },
    'package.yaml': { cosmiconfig: settings },
  }),
  'executable configurations': () => ({
    ...each(['kyc-tokend.config.js', 'kyc-tokend.config.cjs', '.kyc-tokendrc.js'], run()),
    ...each(['kyc-tokend.config.mjs', 'kyc-tokend.config.ts'], runAsModule()),
    '.kyc-tokendrc': 'baseUrl: https://evil.example',
  }),
  'node_modules and .env': () => ({
    ...each(['cosmiconfig', 'js-yaml', 'valibot', 'systeminformation'].map(moduleFile), run()),
    'evil.cjs': run(),
    '.env': 'KYC_TOKEND_CONFIG=evil.json\nNODE_OPTIONS=--require=./evil.cjs\n',
  }),
}
const moduleFile = (name: string): string => `node_modules/${name}/index.js`
const each = <T>(names: string[], content: T): Record<string, T> =>
  Object.fromEntries(names.map((name) => [name, content]))
function lay(name: string): string {
  const directory = join(files.directory, 'snare')
  for (const [file, content] of Object.entries(snares[name]!())) files.write(join('snare', file), content)
  return directory
}

const loadIn = (cwd: string, ...args: string[]): string =>
  execFileSync(process.execPath, [program, ...args], {
    cwd,
    encoding: 'utf8',
    env: { RUNTIME_DIRECTORY: '/run/x' },
  })

describe('a hostile working directory', () => {
  it.each(Object.keys(snares))('runs nothing and changes nothing by %s', (name) => {
    const good = files.write('good/c.yaml', smallConfig())
    expect(loadIn(lay(name), good)).toBe(`${good} https://api.example.com\n`)
    expect(loadIn(lay(name))).toMatch(/there is no configuration file/)
    expect(existsSync(join(files.directory, 'run'))).toBe(false)
  })
})

/** Loads a configuration as another user. */
const asOther = (cwd: string, { env = {}, args = [] as string[], id = 65_533 } = {}): string => {
  const options = { cwd, encoding: 'utf8', env, uid: id, gid: id } as const
  return execFileSync(process.execPath, [program, ...args], options)
}

describe.runIf(process.getuid!() === 0)('the working directory of a person', () => {
  beforeEach(() => {
    chmodSync(files.directory, 0o755)
    const document = { ...smallConfig(), baseUrl: 'https://here.example' }
    chownSync(files.write('kyc-tokend.config.yaml', document), 65_533, 65_533)
  })
  it.each<[string, () => void, RegExp]>([
    [
      'a FIFO, which is not opened',
      () => execFileSync('mkfifo', [join(files.directory, 'kyc-tokend.config.json')]),
      /kyc-tokend\.config\.json: .*is not a regular file/,
    ],
    [
      'one that this person may not read, which is not passed over',
      () => files.write('kyc-tokend.config.json', smallConfig()),
      /config\.json: .*may not be read by the user \w+/,
    ],
  ])('is where the search begins; it may hold %s', (_what, make, seen) => {
    make()
    expect(asOther(files.directory)).toMatch(seen)
  })
  it('is not looked at by root, nor by a service', () => {
    const said = /there is no configuration file \/etc\/kyc-tokend\/kyc-tokend\.config\.json/
    expect(asOther(files.directory, { env: serviceEnv })).toMatch(said)
    const options = { cwd: files.directory, encoding: 'utf8', env: {} } as const
    expect(execFileSync(process.execPath, [program], options)).toMatch(said)
  })
})
