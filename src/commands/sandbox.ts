// `kyc-tokend sandbox`: runs the stand-in of the service in the foreground, a line for each request.
import type { ServiceConfig } from '../config/config.ts'
import { loadService } from '../config/load.ts'
import { standardService } from '../config/resolve.ts'
import { programName } from '../host/paths.ts'
import { escapeUnsafe } from '../lib/display-text.ts'
import { createSystemClock } from '../lib/clock.ts'
import { parseDuration } from '../lib/duration.ts'
import { exitStatus, UsageError } from '../lib/error.ts'
import { described } from '../sandbox/described.ts'
import { createSandbox, sandboxCredentials } from '../sandbox/sandbox.ts'
import { scenarioNames, summaryOf, type ScenarioName } from '../sandbox/scenarios.ts'
import type { RunCommand } from '../terminal/command.ts'

const MAX_TOKEN_LIFETIME_MS = 366 * 86_400_000

export const run: RunCommand = async ({ options, env, stdout, signal }) => {
  const tokenLifetimeMs = lifetimeOf(options['token-lifetime'] ?? '60s')
  const configPath = options['config']
  const plan = typeof configPath === 'string' ? await loadService({ configPath, env }) : standardService()
  const initial = (options['scenario'] ?? 'ok') as ScenarioName
  const sandbox = await createSandbox({
    port: portOf(options['port'] ?? '0'),
    scenario: initial,
    tokenLifetimeMs,
    service: described(plan),
    clock: createSystemClock(),
    onRequest({ atMs, method, path, status, scenario }) {
      const line = `${new Date(atMs).toISOString()}  ${method} ${path}  ${status ?? 'cut'}  (${scenario})`
      stdout.write(`${escapeUnsafe(line)}\n`)
    },
  })
  stdout.write(introduction(sandbox.url, initial, plan.service))
  await sandbox.run(signal)
  return exitStatus.ok
}

function introduction(url: string, scenario: ScenarioName, service: ServiceConfig): string {
  const { baseUrl } = service
  const { apiKey, apiSecret } = sandboxCredentials
  const { pathname, search } = new URL(service.tokenUrl)
  const isElsewhere = !service.tokenUrl.startsWith(`${baseUrl}/`)
  const tokenUrl = isElsewhere ? `"service": { "tokenUrl": "${url}${pathname}${search}", … }` : ''
  const names = scenarioNames.map((name) => `  ${name.padEnd(18)} ${escapeUnsafe(summaryOf(name, service))}`)
  return `A stand-in of the service is at ${url}. In kyc-tokend.config.json, which only you may read (chmod 600):

  "baseUrl": "${url}${new URL(baseUrl).pathname.replace(/\/$/, '')}",
  "credentials": { "apiKey": "${apiKey}", "apiSecret": "${apiSecret}" }
  ${tokenUrl}
To try:

  ${programName()} check --live --config kyc-tokend.config.json
  curl -X PUT -d outage ${url}/scenario

Scenarios (now ${scenario}):

${names.join('\n')}

Ctrl-C ends it. Requests:
`
}

function portOf(option: string | boolean): number {
  if (/^\d{1,5}$/.test(String(option)) && Number(option) <= 65_535) return Number(option)
  throw new UsageError('--port takes a number from 0 to 65535; 0 is a free port.')
}

function lifetimeOf(option: string | boolean): number {
  const ms = parseDuration(String(option))
  if (ms !== undefined && ms >= 1_000 && ms <= MAX_TOKEN_LIFETIME_MS) return ms
  throw new UsageError('--token-lifetime takes a duration of at least 1s, such as 60s or 15m.')
}
