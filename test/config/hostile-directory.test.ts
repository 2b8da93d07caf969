import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'

import { createConfigFiles, smallConfig, type ConfigFiles } from '../support/config-files.ts'

const program = new URL('../support/print-config.ts', import.meta.url).pathname
let files: ConfigFiles
beforeEach(() => {
  files = createConfigFiles()
})
afterEach(() => {
  files.remove()
})

/** Everything that a working directory could try, each of which would make the file `run`. */
function laySnares(directory: string): void {
  const run = `require('fs').writeFileSync(${JSON.stringify(join(files.directory, 'run'))}, 'x')`
  const asModule = `import{writeFileSync}from'fs';writeFileSync(${JSON.stringify(join(files.directory, 'run'))},'x')`
  const elsewhere = { searchPlaces: ['evil.json'], loaders: { '.json': './evil.cjs' } }
  const snares: Record<string, string | object> = {
    '.config/config.js': run,
    '.config/config.cjs': run,
    '.config/config.mjs': asModule,
    '.config/config.ts': asModule,
    '.config/config.yaml': 'searchPlaces: [evil.json]\nmergeSearchPlaces: false\n',
    '.config/config.json': elsewhere,
    'kyc-tokend.config.js': run,
    'kyc-tokend.config.cjs': run,
    'kyc-tokend.config.mjs': asModule,
    'kyc-tokend.config.ts': asModule,
    '.kyc-tokendrc': 'baseUrl: https://evil.example',
    '.kyc-tokendrc.js': run,
    'package.json': {
      type: 'commonjs',
      cosmiconfig: elsewhere,
      'kyc-tokend': { baseUrl: 'https://evil.example' },
    },
    'package.yaml': 'cosmiconfig: { searchPlaces: [evil.json] }\n',
    'evil.json': { ...smallConfig(), baseUrl: 'https://evil.example' },
    'evil.cjs': run,
    'tsconfig.json': '{',
    '.env': 'KYC_TOKEND_CONFIG=evil.json\nNODE_OPTIONS=--require=./evil.cjs\n',
  }
  for (const name of ['cosmiconfig', 'js-yaml', 'zod', 'systeminformation', 'env-paths'])
    snares[`node_modules/${name}/index.js`] = run
  for (const [name, content] of Object.entries(snares)) files.write(join(directory, name), content)
}

const loadIn = (cwd: string, ...args: string[]): string =>
  execFileSync(process.execPath, [program, ...args], {
    cwd,
    encoding: 'utf8',
    env: { RUNTIME_DIRECTORY: '/run/x' },
  })

describe('a hostile working directory', () => {
  it.each(['json', 'yaml'])('runs nothing and changes nothing when a .%s is loaded', (extension) => {
    const good = files.write(`good/c.${extension}`, smallConfig())
    laySnares('snares')
    expect(loadIn(join(files.directory, 'snares'), good)).toBe(`${good} https://api.example.com\n`)
    expect(existsSync(join(files.directory, 'run'))).toBe(false)
  })
  it('offers nothing to a search but files of data', () => {
    laySnares('snares')
    const told = loadIn(join(files.directory, 'snares'))
    expect(told).toMatch(/there is no configuration file/)
    expect(existsSync(join(files.directory, 'run'))).toBe(false)
  })
  it('may have been removed', () => {
    const good = files.write('good/c.json', smallConfig())
    mkdirSync(join(files.directory, 'gone'))
    const script = 'rmdir ../gone && exec "$@"'
    const told = execFileSync('/bin/sh', ['-c', script, 'sh', process.execPath, program, good], {
      cwd: join(files.directory, 'gone'),
      encoding: 'utf8',
      env: {},
    })
    expect(told).toContain('https://api.example.com')
  })
})

describe.runIf(process.getuid!() === 0)('the working directory of a person', () => {
  const asNobody = (cwd: string, env = {}): string =>
    execFileSync(process.execPath, [program], { cwd, encoding: 'utf8', env, uid: 65_534, gid: 65_534 })
  beforeEach(() => {
    execFileSync('chmod', ['755', files.directory])
    files.write(
      'kyc-tokend.config.yaml',
      'baseUrl: https://here.example\ncredentials: { apiKey: k, apiSecret: s }\n',
    )
    execFileSync('chown', ['65534:65534', join(files.directory, 'kyc-tokend.config.yaml')])
  })
  it('is where the search begins', () => {
    expect(asNobody(files.directory)).toContain('https://here.example')
  })
  it('is not looked at by root, nor by a service', () => {
    expect(asNobody(files.directory, { RUNTIME_DIRECTORY: '/run/kyc-tokend' })).toMatch(
      /there is no configuration file/,
    )
    expect(
      execFileSync(process.execPath, [program], { cwd: files.directory, encoding: 'utf8', env: {} }),
    ).toMatch(/looked for \/etc\/kyc-tokend\/kyc-tokend\.config\.json, [^ ]+\.yaml, [^ ]+\.yml\)/)
  })
})
