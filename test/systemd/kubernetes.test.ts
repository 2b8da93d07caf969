import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { parseAllDocuments } from 'yaml'
import { PROGRAM } from '../support/daemon.ts'
import { tempDirectory } from '../support/temp-directory.ts'

// Its keys are compared with a list; no cluster is to be had here.
const PROJECT = path.resolve(import.meta.dirname, '../..')
const DIRECTORY = path.join(PROJECT, 'systemd/kubernetes')
/** Every key that the manifests use, by the field that holds it. A misspelt one is not in this list. */
const KEYS: Record<string, string> = {
  '': 'apiVersion kind metadata data spec',
  metadata: 'name labels',
  spec:
    'automountServiceAccountToken replicas selector template initContainers containers volumes ' +
    'securityContext',
  selector: 'matchLabels',
  template: 'metadata spec',
  securityContext:
    'runAsNonRoot runAsUser runAsGroup fsGroup fsGroupChangePolicy supplementalGroups ' +
    'readOnlyRootFilesystem allowPrivilegeEscalation capabilities seccompProfile',
  capabilities: 'drop',
  seccompProfile: 'type',
  initContainers:
    'name image args command env restartPolicy startupProbe readinessProbe livenessProbe ' +
    'securityContext resources volumeMounts',
  containers: 'name image args command env securityContext resources volumeMounts',
  env: 'name value valueFrom',
  valueFrom: 'fieldRef',
  fieldRef: 'fieldPath',
  startupProbe: 'exec periodSeconds failureThreshold timeoutSeconds',
  livenessProbe: 'exec periodSeconds failureThreshold timeoutSeconds',
  readinessProbe: 'exec periodSeconds failureThreshold timeoutSeconds',
  exec: 'command',
  resources: 'requests limits',
  requests: 'cpu memory',
  limits: 'cpu memory',
  volumeMounts: 'name mountPath readOnly',
  volumes: 'name emptyDir secret configMap',
  emptyDir: 'medium sizeLimit',
  secret: 'secretName defaultMode items',
  configMap: 'name defaultMode items',
}
const OWN_KEYS = new Set(['labels', 'matchLabels', 'data'])

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

/** The keys in `value`, the value of the field `name`, that the list does not have. */
function unknownKeys(value: unknown, name = ''): string[] {
  if (Array.isArray(value)) return value.flatMap((element) => unknownKeys(element, name))
  if (typeof value !== 'object' || value === null || OWN_KEYS.has(name)) return []
  const known = (KEYS[name] ?? '').split(' ')
  return Object.entries(value).flatMap(([key, inner]) => [
    ...(known.includes(key) ? [] : [`${name}.${key}`]),
    ...unknownKeys(inner, key),
  ])
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

  it('has resources that Kubernetes knows, and no other key', () => {
    expect(resources).toMatchObject([
      { apiVersion: 'v1', kind: 'ConfigMap' },
      { apiVersion: 'apps/v1', kind: 'Deployment' },
    ])
    expect(unknownKeys(resources)).toEqual([])
    const wrong = structuredClone(resources) as unknown as [unknown, typeof deployment]
    Object.assign(wrong[1].spec.template.spec.initContainers[0]!, { restartpolicy: 'Always' })
    expect(unknownKeys(wrong)).toEqual(['initContainers.restartpolicy'])
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
