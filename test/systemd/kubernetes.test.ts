// The manifests for Kubernetes: well formed, their volumes are mounted, and their configuration has no fault.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { runCli } from '../support/run-cli.ts'
import { tempDirectory } from '../support/temp-directory.ts'

const DIRECTORY = path.resolve(import.meta.dirname, '../../systemd/kubernetes')
type Named = readonly { readonly name: string }[]
interface Resource {
  readonly data: Readonly<Record<string, string>>
  readonly spec: {
    template: {
      spec: Record<'initContainers' | 'containers', { volumeMounts: Named }[]> & { volumes: Named }
    }
  }
}

test.each(readdirSync(DIRECTORY))(
  '%s mounts every volume that it has, and no other, and has a configuration without a fault',
  async (file) => {
    const documents = parseAllDocuments(readFileSync(path.join(DIRECTORY, file), 'utf8'))
    expect(documents.flatMap(({ errors }) => errors)).toEqual([])
    const resources = documents.map((document) => document.toJS() as unknown)
    expect(resources).toMatchObject([
      { apiVersion: 'v1', kind: 'ConfigMap' },
      { apiVersion: 'apps/v1', kind: 'Deployment' },
    ])
    const [{ data }, { spec }] = resources as [Resource, Resource]
    const { initContainers, containers, volumes } = spec.template.spec
    const mounted = [...initContainers, ...containers].flatMap(({ volumeMounts }) => volumeMounts)
    expect(new Set(mounted.map(({ name }) => name))).toEqual(new Set(volumes.map(({ name }) => name)))

    const directory = await tempDirectory()
    const text = data['kyc-tokend.config.json']!.replaceAll('/run/secrets/kyc', directory)
    for (const name of ['api-key', 'api-secret', 'redis-password'])
      writeFileSync(path.join(directory, name), 'a-secret-of-enough-characters', { mode: 0o400 })
    const config = path.join(directory, 'kyc-tokend.config.json')
    writeFileSync(config, text, { mode: 0o600 })
    // Checked as this user, and not as that of the service, where one is installed.
    const env = { RUNTIME_DIRECTORY: directory, STATE_DIRECTORY: directory }
    const { status, stdout } = await runCli(['check', '--config-only', '--config', config], { env })
    expect({ status, stdout }).toEqual({ status: 0, stdout: expect.stringContaining('No fault') })
  },
)
