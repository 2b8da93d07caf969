// Every example for the client library: strict TypeScript accepts it, and it runs with the fake client.
import { execFile, spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { tempDirectory } from '../support/temp-directory.ts'
import { blocks, PROJECT } from './manual.ts'

const readme = /^```js\n([\s\S]*?)\n```$/m.exec(readFileSync(join(PROJECT, 'src/client/README.md'), 'utf8'))
const examples = [...blocks(), { name: 'package-readme', code: readme?.[1] ?? '' }].filter(({ code }) =>
  code.includes("from 'kyc-tokend"),
)
const src = join(PROJECT, 'src/client')
/** What programs find as `kyc-tokend`: its client is a fake, and the API answers each request. */
const fakePackage = {
  'package.json': '{ "type": "module", "exports": { ".": "./index.js", "./testing": "./testing.js" } }',
  'testing.js': `export * from '${src}/testing.ts'`,
  'index.js': `import { createFakeTokenClient } from '${src}/testing.ts'
    export * from '${src}/errors.ts'
    globalThis.fetch = async () => new Response('done')
    export class TokenClient {
      constructor(options) { return createFakeTokenClient(options) }
    }`,
}

/** A project with the examples. */
async function project(): Promise<string> {
  const directory = await tempDirectory()
  const folder = join(directory, 'node_modules/kyc-tokend')
  mkdirSync(folder, { recursive: true })
  for (const [file, text] of Object.entries(fakePackage)) writeFileSync(join(folder, file), text)
  for (const { name, code } of examples) writeFileSync(join(directory, `${name}.mjs`), code)
  return directory
}

test('strict TypeScript accepts each, with exactOptionalPropertyTypes', async () => {
  const directory = await project()
  const compilerOptions = {
    strict: true,
    exactOptionalPropertyTypes: true,
    checkJs: true,
    noEmit: true,
    module: 'nodenext',
    target: 'esnext',
    lib: ['esnext'],
    allowImportingTsExtensions: true,
    types: ['node'],
    typeRoots: [join(PROJECT, 'node_modules/@types')],
    paths: { 'kyc-tokend': [`${src}/index.ts`], 'kyc-tokend/testing': [`${src}/testing.ts`] },
  }
  writeFileSync(join(directory, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.mjs'] }))
  const { status, stdout } = spawnSync('tsc', ['--project', directory], { encoding: 'utf8' })
  expect({ status, stdout }).toEqual({ status: 0, stdout: '' })
})

test.each(examples.map(({ name }) => name))('%s runs with the fake', async (name) => {
  const directory = await project()
  const output = await new Promise<string>((resolve) => {
    execFile(process.execPath, [join(directory, `${name}.mjs`)], { timeout: 20_000 }, (error, stdout) =>
      resolve(error === null ? stdout : error.message),
    )
  })
  const outputs = new Map([
    ['token-client', /^200\n12 characters, good until .*Z\ntoken [0-9a-f]{16} is ready\n$/],
    ['authorize', /^200\n$/],
    ['testing', /pass 2\b/],
    ['package-readme', /^$/],
  ])
  expect(output).toMatch(outputs.get(name)!)
})
