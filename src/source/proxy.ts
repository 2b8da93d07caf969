// The proxy of the usual variables, made fit for Node's agents, which pass over in silence what they do not know.
import { exitStatus, UserError } from '../lib/error.ts'

/**
 * The `proxyEnv` of an agent for this service: `https_proxy` or `HTTPS_PROXY` and `no_proxy` or `NO_PROXY`,
 * or nothing. Plain HTTP (a loopback service) never goes to a proxy: it would read the secret. Throws a UserError
 * where the variable names no HTTP proxy, without quoting it: it can hold a password.
 */
export function proxyEnvOf(service: URL, env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const proxy = (env['https_proxy'] || env['HTTPS_PROXY'])?.trim()
  if (service.protocol !== 'https:' || !proxy) return {}
  // As curl has it: no scheme means HTTP.
  const url = proxy.includes('://') ? proxy : `http://${proxy}`
  if (!/^https?:\/\//i.test(url) || !URL.canParse(url)) {
    throw new UserError(
      'HTTPS_PROXY names no HTTP proxy: write it as http://proxy.example.com:3128, or leave it out and set nothing',
      exitStatus.configuration,
    )
  }
  return { https_proxy: new URL(url).href, no_proxy: env['no_proxy'] || env['NO_PROXY'] || '' }
}
