// The manifests for Kubernetes: well formed, their volumes are mounted, and their configuration has no fault.
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { PROGRAM } from '../support/daemon.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const PROJECT = path.resolve(import.meta.dirname, '../..')
const DIRECTORY = path.join(PROJECT, 'systemd/kubernetes')
interface ConfigMap {
  readonly data: Readonly<Record<string, string>>
}
interface Container {
  readonly volumeMounts: readonly { name: string }[]
}
interface Deployment {
  readonly spec: {
    template: { spec: Record<'initContainers' | 'containers', Container[]> & { volumes: { name: string }[] } }
  }
}

function resourcesIn(file: string): unknown[] {
  const documents = parseAllDocuments(readFileSync(path.join(DIRECTORY, file), 'utf8'))
  expect(documents.flatMap(({ errors }) => errors)).toEqual([])
  const resources = documents.map((document) => document.toJS() as unknown)
  expect(resources).toMatchObject([
    { apiVersion: 'v1', kind: 'ConfigMap' },
    { apiVersion: 'apps/v1', kind: 'Deployment' },
  ])
  return resources
}

describe.each(readdirSync(DIRECTORY))('%s', (file) => {
  const [{ data }, { spec }] = resourcesIn(file) as [ConfigMap, Deployment]

  it('mounts every volume that it has, and no other', () => {
    const { initContainers, containers, volumes } = spec.template.spec
    const mounted = [...initContainers, ...containers].flatMap(({ volumeMounts }) => volumeMounts)
    expect(new Set(mounted.map(({ name }) => name))).toEqual(new Set(volumes.map(({ name }) => name)))
  })

  it('has a configuration without a fault', async () => {
    const directory = await tempDirectory()
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
