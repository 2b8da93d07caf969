// Every example for the client library: strict TypeScript accepts it, and it runs with the fake client.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { runProgram } from '../support/run-cli.ts'
import { tempDirectory } from '../support/temp-directory.ts'
import { block, PROJECT } from './manual.ts'

const src = join(PROJECT, 'src/client')
const readme = /^```js\n([\s\S]*?)\n```$/m.exec(readFileSync(join(src, 'README.md'), 'utf8'))
/** Each example, and what it prints. */
const EXAMPLES = [
  [
    'token-client',
    block('token-client').code,
    /^200\n12 characters, good until .*Z\ntoken [0-9a-f]{16} is ready\n$/,
  ],
  ['authorize', block('authorize').code, /^200\n$/],
  ['testing', block('testing').code, /pass 1\b/],
  ['package-readme', readme?.[1] ?? '', /^$/],
] as const
/** What programs find as `kyc-tokend`: its client is a fake, and the API answers each request. */
const FAKE_PACKAGE = {
  'package.json': '{ "type": "module", "exports": { ".": "./index.js", "./testing": "./testing.js" } }',
  'testing.js': `export * from '${src}/testing.ts'`,
  'index.js': `import { createFakeTokenClient } from '${src}/testing.ts'
    export * from '${src}/token-source.ts'
    globalThis.fetch = async () => new Response('done')
    export class TokenClient {
      constructor(options) { return createFakeTokenClient(options) }
    }`,
}

test('strict TypeScript accepts each, with exactOptionalPropertyTypes, and it runs with the fake', async () => {
  const directory = await tempDirectory()
  const folder = join(directory, 'node_modules/kyc-tokend')
  mkdirSync(folder, { recursive: true })
  for (const [file, text] of Object.entries(FAKE_PACKAGE)) writeFileSync(join(folder, file), text)
  for (const [name, code] of EXAMPLES) writeFileSync(join(directory, `${name}.mjs`), code)
  const compilerOptions = {
    strict: true,
    exactOptionalPropertyTypes: true,
    checkJs: true,
    noEmit: true,
    module: 'nodenext',
    allowImportingTsExtensions: true,
    types: ['node'],
    typeRoots: [join(PROJECT, 'node_modules/@types')],
    paths: { 'kyc-tokend': [`${src}/index.ts`], 'kyc-tokend/testing': [`${src}/testing.ts`] },
  }
  writeFileSync(join(directory, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.mjs'] }))
  const { status, stdout } = await runProgram(['tsc', '--project', directory])
  expect({ status, stdout }).toEqual({ status: 0, stdout: '' })

  for (const [name, code, output] of EXAMPLES) {
    expect(code, name).toContain("from 'kyc-tokend")
    const program = [process.execPath, join(directory, `${name}.mjs`)]
    expect((await runProgram(program)).stdout, name).toMatch(output)
  }
})
