import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { Deployment } from 'kubernetes-models/apps/v1'
import { ConfigMap } from 'kubernetes-models/v1'
import { describe, expect, it, onTestFinished } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { PROGRAM } from '../support/daemon.ts'
import { tempDirectory } from '../support/temp-directory.ts'

// Checked against the schema of Kubernetes; no cluster is to be had here.
const PROJECT = path.resolve(import.meta.dirname, '../..')
const DIRECTORY = path.join(PROJECT, 'systemd/kubernetes')
const MODELS = { Deployment, ConfigMap }
const MODULES = { Deployment: 'kubernetes-models/apps/v1', ConfigMap: 'kubernetes-models/v1' }

interface Resource {
  readonly kind: keyof typeof MODELS
}
interface Container {
  readonly volumeMounts: readonly { name: string; mountPath: string }[]
}

function resourcesIn(file: string): Resource[] {
  return parseAllDocuments(readFileSync(path.join(DIRECTORY, file), 'utf8')).map((document) => {
    expect(document.errors).toEqual([])
    return document.toJS() as Resource
  })
}

/** The compiler's complaints about these resources as literals of their types: it names unknown keys, which validation accepts. */
function complaintsAbout(resources: readonly Resource[]): string {
  const cache = path.join(PROJECT, 'node_modules/.cache')
  mkdirSync(cache, { recursive: true })
  const directory = mkdtempSync(path.join(cache, 'kubernetes-'))
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }))
  const lines = resources.flatMap((resource, index) => [
    `import type { I${resource.kind} as T${index} } from '${MODULES[resource.kind]}'`,
    `export const resource${index}: T${index} = ${JSON.stringify(resource)}`,
  ])
  const file = path.join(directory, 'resources.ts')
  writeFileSync(file, lines.join('\n'))
  const options = [
    '--ignoreConfig',
    '--noEmit',
    '--strict',
    '--skipLibCheck',
    '--module',
    'nodenext',
    '--target',
    'es2023',
  ]
  return spawnSync('tsc', [...options, file], { encoding: 'utf8' }).stdout
}

describe.each(readdirSync(DIRECTORY))('%s', (file) => {
  const resources = resourcesIn(file)
  const deployment = resources.find(({ kind }) => kind === 'Deployment') as unknown as {
    spec: {
      template: {
        spec: { initContainers: Container[]; containers: Container[]; volumes: { name: string }[] }
      }
    }
  }
  const pod = deployment.spec.template.spec

  it('has resources that Kubernetes knows', () => {
    expect(resources.map(({ kind }) => kind)).toEqual(['ConfigMap', 'Deployment'])
    for (const resource of resources) new MODELS[resource.kind](resource as never).validate()
  })

  it('has no key that Kubernetes does not know', { timeout: 60_000 }, () => {
    expect(complaintsAbout(resources)).toBe('')
    const wrong = structuredClone(resources) as unknown as [unknown, typeof deployment]
    Object.assign(wrong[1].spec.template.spec.initContainers[0]!, { restartpolicy: 'Always' })
    expect(complaintsAbout(wrong as unknown as Resource[])).toMatch(/'"?restartpolicy"?' does not exist/)
  })

  it('mounts every volume that it has, and no other', () => {
    const mounted = [...pod.initContainers, ...pod.containers].flatMap(({ volumeMounts }) => volumeMounts)
    expect(new Set(mounted.map(({ name }) => name))).toEqual(new Set(pod.volumes.map(({ name }) => name)))
  })

  it('has a configuration without a fault', async () => {
    const directory = await tempDirectory()
    const { data } = resources[0] as unknown as { data: Record<string, string> }
    const text = data['kyc-tokend.config.json']!.replaceAll('/run/secrets/kyc', directory)
    for (const name of ['api-key', 'api-secret', 'redis-password'])
      writeFileSync(path.join(directory, name), 'a-secret-of-enough-characters', { mode: 0o400 })
    const config = path.join(directory, 'kyc-tokend.config.json')
    writeFileSync(config, text, { mode: 0o600 })
    const [node, program] = PROGRAM
    const { status, stdout } = spawnSync(node, [program, 'check', '--config-only', '--config', config], {
      encoding: 'utf8',
      // Checked as this user, and not as that of the service, where one is installed.
      env: { PATH: process.env['PATH'], RUNTIME_DIRECTORY: directory, STATE_DIRECTORY: directory },
    })
    expect({ status, stdout }).toEqual({ status: 0, stdout: expect.stringContaining('No fault') })
  })
})
