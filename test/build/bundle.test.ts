import { execFileSync, spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { commands } from '../../src/commands/specs.ts'
import { PROGRAM, startDaemon } from '../support/daemon.ts'
import { serviceOf, tokenOf } from '../support/outside.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { expectUntil } from '../support/until.ts'

const LOADED_MODULES = new URL('../support/loaded-modules.cjs', import.meta.url).pathname
const LOADED_PARTS = new URL('../support/loaded-parts.cjs', import.meta.url).pathname
const CONVERSION = /\(require\("node:[\w/]+"\),1\)/

describe('the bundled program', () => {
  const directory = path.dirname(PROGRAM[1])
  const files = readdirSync(directory).filter((name) => name.endsWith('.cjs'))

  it('has no conversion of whole modules of Node, which reads all their properties', () => {
    expect(files).toContain('run.cjs')
    for (const file of files.filter((name) => !/^(winston|systeminformation)\.cjs$/.test(name)))
      expect(readFileSync(path.join(directory, file), 'utf8').match(CONVERSION), file).toBeNull()
  })

  it('has no colours, which winston’s libraries load for terminals and for their own debugging', () => {
    const winston = readFileSync(path.join(directory, 'winston-logger.cjs'), 'utf8')
    expect(winston).toContain('createLogger')
    expect(winston).not.toContain('cmyk')
    expect(winston).not.toContain('rainbow')
  })

  it('measures no time for retries without a limit, for which Node loads ten modules', () => {
    const daemon = readFileSync(path.join(directory, 'run.cjs'), 'utf8')
    expect(daemon).toContain('maxRetryTime')
    expect(daemon).not.toContain('performance.now()')
  })

  it('has no copy of Node’s streams', () => {
    for (const file of files)
      expect(readFileSync(path.join(directory, file), 'utf8'), file).not.toContain(
        'ERR_STREAM_PUSH_AFTER_EOF',
      )
  })

  it.each([
    ['json', '{}', false],
    ['yaml', 'a: 1', true],
  ])('loads the parser of YAML for YAML only: %s', async (extension, text, isLoaded) => {
    const config = path.join(await tempDirectory(), `kyc-tokend.config.${extension}`)
    writeFileSync(config, text)
    const { stderr } = spawnSync(
      PROGRAM[0],
      ['--require', LOADED_PARTS, PROGRAM[1], 'check', '--config-only', '--config', config],
      { encoding: 'utf8' },
    )
    expect(stderr).toContain('loaded ./check.cjs')
    expect(stderr.includes('loaded ./js-yaml.cjs')).toBe(isLoaded)
  })

  it('has each command but token in a file of its own', () => {
    const names = commands.map(({ name }) => name).filter((name) => name !== 'token')
    expect(files).toEqual(expect.arrayContaining(names.map((name) => `${name}.cjs`)))
  })

  it('loads neither TLS nor datagrams with the daemon, nor the line reader of node:fs/promises', () => {
    const program = 'require(process.argv[1]); console.log(process.moduleLoadList.join())'
    const loaded = execFileSync(process.execPath, ['-e', program, path.join(directory, 'run.cjs')], {
      encoding: 'utf8',
    }).split(',')
    expect(loaded).toContain('NativeModule net')
    expect(loaded).not.toContain('NativeModule tls')
    expect(loaded).not.toContain('NativeModule dgram')
    expect(loaded).not.toContain('NativeModule fs/promises')
  })

  it('gives a token that it had kept without the modules of node:crypto and TLS', async () => {
    const options = { directory: await tempDirectory(), baseUrl: (await serviceOf()).url }
    const first = startDaemon(options)
    await first.listening()
    const { accessToken } = await tokenOf(first)
    expect(await first.end()).toBe(0)
    const [node, program] = PROGRAM
    const daemon = startDaemon({ ...options, program: [node, '--require', LOADED_MODULES, program] })
    await daemon.listening()
    expect(await tokenOf(daemon)).toMatchObject({ accessToken })
    daemon.process.kill('SIGUSR1')
    const loaded = await expectUntil('the list', () => /loaded: (.+) \.\n/.exec(daemon.stderr())?.[1])
    const names = loaded.split(' ')
    expect(names).toContain('net')
    expect(names.filter((name) => ['crypto', 'tls'].includes(name))).toEqual([])
  })
})
