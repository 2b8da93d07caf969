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
interface Resource {
  readonly kind: string
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

  it('has a ConfigMap and a Deployment', () => {
    expect(resources).toMatchObject([
      { apiVersion: 'v1', kind: 'ConfigMap' },
      { apiVersion: 'apps/v1', kind: 'Deployment' },
    ])
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
