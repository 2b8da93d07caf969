// "How to add" of src/README.md, carried out in a clone: a reason, an event, a setting and a command, and `npm run check` is green.
import { execFileSync, spawnSync } from 'node:child_process'
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { cloneProject } from '../support/clone.ts'

/** Of the tests that import what changed, those about it: all would be most of the suite. */
const NEAR = [
  'test/commands/follow',
  'test/commands/completions',
  'test/config/schema',
  'test/manual/tables',
  'test/scenarios/scenarios',
  'test/source/response',
]

describe('how to add', { timeout: 900_000 }, () => {
  let copy: string
  beforeAll(() => {
    copy = mkdtempSync(path.join(tmpdir(), 'kyc-recipes-'))
    cloneProject(copy)
  })
  afterAll(() => rmSync(copy, { recursive: true, force: true }))

  /** Puts the lines behind the first occurrence of `anchor`. */
  function insert(file: string, anchor: string, lines: string): void {
    const text = readFileSync(path.join(copy, file), 'utf8')
    expect(text, `${file} has "${anchor}"`).toContain(anchor)
    writeFileSync(
      path.join(copy, file),
      text.replace(anchor, () => anchor + lines),
    )
  }
  /** Puts the row of an event before that of `next`. */
  function eventRow(next: string, row: string): void {
    const file = path.join(copy, 'systemd/man/kyc-tokend.8.md')
    const before = readFileSync(file, 'utf8')
    expect(before).toContain(`\n| ${next} `)
    writeFileSync(
      file,
      before.replace(`\n| ${next} `, () => `\n${row}\n| ${next} `),
    )
  }
  const npm = (
    script: string,
    files: string[] = [],
  ): { status: number | null; stdout: string; stderr: string } =>
    spawnSync('npm', ['run', '--silent', script, '--', ...files], { cwd: copy, encoding: 'utf8' })

  it('a failure reason: the compiler names its remedy and its row', () => {
    insert('src/token/outcome.ts', "  'rate-limited',\n", "  'recipe-failed',\n")
    const { status, stdout } = npm('typecheck')
    expect(status).not.toBe(0)
    const places = new Set([...stdout.matchAll(/^(\S+?)\(\d+,\d+\): error/gm)].map(([, place]) => place))
    expect(places).toEqual(new Set(['src/source/response.ts', 'src/token/outcome.ts']))
    insert(
      'src/token/outcome.ts',
      'Advice>> = {\n',
      "  'recipe-failed': { text: 'Nothing to do', steps: [] },\n",
    )
    insert(
      'src/source/response.ts',
      "Omit<Row, 'reason'>>> = {\n",
      "'recipe-failed': { answer: '431', follows: 'retried', covers: ({ status }) => status === 431 },\n",
    )
    appendFileSync(
      path.join(copy, 'test/scenarios/scenarios.yaml'),
      `
- name: a reason of a recipe is retried
  steps:
    - service: { status: 431 }
    - start
    - expect: { failure: recipe-failed }
`,
    )
    expect(npm('typecheck')).toMatchObject({ status: 0 })
  })

  it('a setting, an event that shows it, and a command', () => {
    const setting = "recipe: orNull(line(20), 'Words of a recipe.'),\n"
    insert('src/config/schema.ts', "through Redis; `null`: each by itself.'),\n", setting)
    insert('src/config/resolve.ts', '    log: settings.log,\n', 'recipe: settings.recipe,\n')
    const record =
      "log('notice', 'A recipe was followed', { event: 'recipe-followed', recipe: config.recipe })\n"
    insert('src/report/configuration-log.ts', '  logWarnings(config, log)\n', record)
    eventRow('`recovered`', '| `recipe-followed` | notice | a recipe was followed: `recipe` |')
    const spec =
      "{ name: 'follow', load: () => import('./follow.ts'), summary: 'Follow a recipe', exits: {}, options: {} },\n"
    insert('src/commands/specs.ts', 'export const commands: readonly CommandSpec[] = [\n', spec)
    writeFileSync(
      path.join(copy, 'src/commands/follow.ts'),
      `// \`kyc-tokend follow\`: follows a recipe.
import { exitStatus } from '../lib/error.ts'
import type { RunCommand } from './command.ts'

export const run: RunCommand = async ({ stdout }) => {
  stdout.write('followed\\n')
  return exitStatus.ok
}
`,
    )
    writeFileSync(
      path.join(copy, 'test/commands/follow.test.ts'),
      `import { expect, test } from 'vitest'
import { runCli } from '../support/run-cli.ts'

test('follows a recipe', async () => {
  expect(await runCli(['follow'])).toMatchObject({ status: 0, stdout: 'followed\\n' })
})
`,
    )
    execFileSync('git', ['add', '.'], { cwd: copy })
    const { status, stdout, stderr } = npm('check', NEAR)
    expect(stdout).toContain('test/commands/follow.test.ts')
    expect(status, stderr).toBe(0)
  })
})
