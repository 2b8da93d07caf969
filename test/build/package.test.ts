// The package that `npm run pack` makes, installed in a project without a network and used as its users do.
import { execFileSync, spawnSync } from 'node:child_process'
import { cpSync, readdirSync, readFileSync, symlinkSync } from 'node:fs'
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { daemonWith, generous, renewingDaemon, strict } from '../support/client-world.ts'
import { serviceOf } from '../support/outside.ts'
import { runProgram, type Ended } from '../support/run-cli.ts'

const root = new URL('../..', import.meta.url).pathname
let directory: string
/** The project in which the package is installed. */
let app: string
const installed = (...path: string[]): string => join(app, 'node_modules/kyc-tokend', ...path)

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'kyc-tokend-test-'))
  app = join(directory, 'app')
  await mkdir(app)
  await writeFile(join(app, 'package.json'), '{ "private": true }')
  // A copy of the project, which gets a dist/ of its own.
  for (const name of ['src', 'node_modules']) symlinkSync(join(root, name), join(directory, name))
  cpSync(join(root, 'systemd'), join(directory, 'systemd'), { recursive: true })
  for (const { name } of readdirSync(root, { withFileTypes: true }).filter((entry) => entry.isFile()))
    cpSync(join(root, name), join(directory, name))
  const options = '--offline --no-audit --no-fund --os=darwin --cpu=arm64'
  const script = `npm run pack; cd app; npm install ${options} ../dist/kyc-tokend-*.tgz`
  execFileSync('sh', ['-euc', script], { cwd: directory, stdio: 'pipe' })
}, 120_000)
afterAll(async () => rm(directory, { recursive: true, force: true }))

const manifest = (): { version: string } => JSON.parse(readFileSync(installed('package.json'), 'utf8'))

test('it is the client alone: no daemon, no command, no other package, no script, on any system', () => {
  const packages = readdirSync(join(app, 'node_modules')).filter((name) => !name.startsWith('.'))
  expect(packages).toEqual(['kyc-tokend'])
  const fields = 'name version description license type engines exports files sideEffects'
  expect(Object.keys(manifest()).join(' ')).toBe(fields)
  const files = readdirSync(installed(), { recursive: true, encoding: 'utf8' })
  const code = files.filter((file) => /\.(node|[cm]?[jt]s)$/.test(file) && !/\.d\.c?ts$/.test(file))
  expect(code.toSorted()).toEqual(['dist/client.cjs', 'dist/client.js'])
  expect(files).toEqual(expect.arrayContaining(['LICENSE', 'README.md']))
})

test('it uses nothing that Node 18 lacks, nor `import()` in CommonJS, where Jest lacks it', () => {
  const lacking =
    /\.(toSorted|toReversed|toSpliced|withResolvers|groupBy)\(|import\.meta\.(dirname|filename)|\bimport\(/g
  expect(readFileSync(installed('dist/client.cjs'), 'utf8').match(lacking)).toBeNull()
})

test('publint finds nothing in it', () => {
  const tarball = join(directory, 'dist', `kyc-tokend-${manifest().version}.tgz`)
  const words = ['run', tarball, '--strict', '--level', 'suggestion']
  const publint = spawnSync(join(root, 'node_modules/.bin/publint'), words, { encoding: 'utf8' })
  expect(publint).toMatchObject({ status: 0, stdout: expect.stringContaining('All good!') })
})

/** Runs a program of the project to its end. */
async function run(
  source: string,
  how: { file?: string; node?: string; env?: NodeJS.ProcessEnv } = {},
): Promise<Ended> {
  const { file = 'app.mjs', node = process.execPath, env = {} } = how
  await writeFile(join(app, file), source)
  return runProgram([node, join(app, file)], { env })
}
const tokens = (path: string): string =>
  `import { TokenClient } from 'kyc-tokend'\nconst tokens = new TokenClient({ socketPath: '${path}' })\n`

test.each([
  ['an ES module', 'esm.mjs', (names: string, from: string) => `import { ${names} } from '${from}'`],
  ['CommonJS', 'cjs.cjs', (names: string, from: string) => `const { ${names} } = require('${from}')`],
])('%s uses it, and finds the socket as the commands do', async (_, file, load) => {
  const daemon = await daemonWith(generous)
  const program = `${load('TokenClient, TokenClientError', 'kyc-tokend')}
    ${load('createFakeTokenClient', 'kyc-tokend/testing')}
    const fake = createFakeTokenClient()
    fake.fail('account-inactive')
    Promise.all([new TokenClient().get(), fake.get().catch((error) => error)]).then(([token, error]) => {
      console.log(token.accessToken, error instanceof TokenClientError, error.code)
    })`
  expect(await run(program, { file, env: { KYC_TOKEND_SOCKET: daemon.path } })).toMatchObject({
    status: 0,
    stdout: 'token-1 true account-inactive\n',
    stderr: '',
  })
})

const oldNode = '/usr/bin/node'
const isOldNodeThere = /^v(18|20)\./.test(
  spawnSync(oldNode, ['--version'], { encoding: 'utf8' }).stdout ?? '',
)
test.skipIf(!isOldNodeThere)(
  'it works on an old Node (skipped where /usr/bin/node is newer than 20)',
  async () => {
    const api = await serviceOf(strict)
    const daemon = await renewingDaemon(api.url)
    const program = `const request = new Request('${api.url}', { method: 'POST', body: 'body' })
    const response = await tokens.fetch(request)
    console.log(response.status, Number.parseInt(process.version.slice(1)) <= 20)`
    const { stdout, stderr } = await run(tokens(daemon.path) + program, { node: oldNode })
    expect({ stdout, stderr }).toEqual({ stdout: '200 true\n', stderr: '' })
    const seen = api.requests.map(({ headers, body }) => `${headers.authorization} ${body}`)
    expect(seen).toEqual(['Bearer token-1 body', 'Bearer token-2 body'])
  },
)

const typed = `
import { TokenClient, TokenClientError, type Authorization, type TokenSource } from 'kyc-tokend'
import { createFakeTokenClient } from 'kyc-tokend/testing'

async function characters(tokens: TokenSource): Promise<number> {
  const { headers, token }: Authorization = await tokens.authorize({ minValidSeconds: 60 })
  return token.cached === true ? 0 : Object.keys(headers).length
}
const fake = createFakeTokenClient({ origins: ['https://a.example'] })
export const sources: TokenSource[] = [new TokenClient({ account: 'us' }), fake]
export const codes = (error: TokenClientError): string => error.code
export const counts = sources.map((source) => characters(source))
// @ts-expect-error: a misspelt option is found
new TokenClient({ socket: '/x' })
`
test.each([
  ['CommonJS', 'node16', 'commonjs'],
  ['ES modules', 'nodenext', 'module'],
])('TypeScript finds its types from %s with %s', async (_, module, type) => {
  const folder = join(app, `${module}-${type}`)
  await mkdir(folder)
  await writeFile(join(folder, 'package.json'), JSON.stringify({ type }))
  await writeFile(join(folder, 'app.ts'), typed)
  const compilerOptions = { module, strict: true, noEmit: true, skipLibCheck: false, types: ['node'] }
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions }))
  await mkdir(join(folder, 'node_modules'))
  await symlink(join(root, 'node_modules/@types'), join(folder, 'node_modules/@types'))
  const tsc = join(root, 'node_modules/.bin/tsc')
  const { status, stdout } = spawnSync(tsc, ['--project', folder], { encoding: 'utf8' })
  expect({ status, stdout }).toEqual({ status: 0, stdout: '' })
})
