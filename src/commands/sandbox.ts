// `kyc-tokend sandbox`: runs the stand-in of the service in the foreground, a line for each request.
import { escapeUnsafe } from '../lib/display-text.ts'
import { createSystemClock } from '../lib/clock.ts'
import { parseDuration, formatDuration } from '../lib/duration.ts'
import { exitStatus, UsageError } from '../lib/error.ts'
import { createSandbox, sandboxCredentials, type SandboxRequest } from '../sandbox/sandbox.ts'
import { isScenarioName, scenarioNames, scenarioOf, type ScenarioName } from '../sandbox/scenarios.ts'
import type { Invocation, RunCommand } from './command.ts'

const DEFAULT_TOKEN_LIFETIME = '60s'
const MAX_TOKEN_LIFETIME_MS = 366 * 86_400_000

export const run: RunCommand = async ({ options, stdout, signal }) => {
  const tokenLifetimeMs = lifetimeOf(options)
  const sandbox = await createSandbox({
    port: portOf(options),
    scenario: scenarioIn(options),
    tokenLifetimeMs,
    clock: createSystemClock(),
    onRequest: (request) => stdout.write(`${escapeUnsafe(lineOf(request))}\n`),
  })
  stdout.write(introduction(sandbox.url, sandbox.scenario(), tokenLifetimeMs))
  await sandbox.run(signal)
  return exitStatus.ok
}

function introduction(url: string, scenario: ScenarioName, tokenLifetimeMs: number): string {
  const { apiKey, apiSecret } = sandboxCredentials
  const names = scenarioNames.map((name) => `  ${name.padEnd(18)} ${scenarioOf(name).summary}`)
  return `A stand-in of the service is at

  ${url}

In kyc-tokend.config.json, which only you may read (chmod 600):

  "baseUrl": "${url}",
  "credentials": { "apiKey": "${apiKey}", "apiSecret": "${apiSecret}" }

Tokens live ${formatDuration(tokenLifetimeMs)}. To try:

  curl -d '{"apiKey":"${apiKey}","apiSecret":"${apiSecret}"}' ${url}/token/external/jwt
  kyc-tokend token --format header | curl -H @- ${url}/me
  curl -X PUT -d outage ${url}/scenario

Scenarios (now ${scenario}):

${names.join('\n')}

Ctrl-C ends it. Requests:
`
}

function lineOf({ atMs, method, path, status, scenario }: SandboxRequest): string {
  return `${new Date(atMs).toISOString()}  ${method} ${path}  ${status ?? 'cut'}  (${scenario})`
}

function portOf({ port }: Invocation['options']): number {
  if (port === undefined) return 0
  const number = /^\d{1,5}$/.test(String(port)) ? Number(port) : Number.NaN
  if (number <= 65_535) return number
  throw new UsageError('--port takes a number from 0 to 65535; 0 is a free port')
}

function scenarioIn({ scenario }: Invocation['options']): ScenarioName {
  const name = scenario === undefined ? 'ok' : String(scenario)
  if (isScenarioName(name)) return name
  throw new UsageError(`--scenario takes one of ${scenarioNames.join(', ')}`)
}

function lifetimeOf(options: Invocation['options']): number {
  const lifetimeMs = parseDuration(String(options['token-lifetime'] ?? DEFAULT_TOKEN_LIFETIME))
  if (lifetimeMs !== undefined && lifetimeMs >= 1_000 && lifetimeMs <= MAX_TOKEN_LIFETIME_MS)
    return lifetimeMs
  throw new UsageError('--token-lifetime takes a duration of at least 1s, such as 60s or 15m')
}
