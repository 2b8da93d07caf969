// The configuration as the rest of the program sees it: read, validated, resolved, read-only.
import { basicOf, sentTexts } from '../lib/credentials.ts'
import { NAME_OF_SECRET, Secret } from '../lib/secret.ts'
import type { resolveConfig } from './resolve.ts'
import type { TokenFileConfig } from './resolve-outputs.ts'

type Frozen<T> = unknown extends T ? T : T extends Secret ? T : { readonly [Key in keyof T]: Frozen<T[Key]> }

/** Settings have the names and meanings of the schema; `resolveConfig` describes the rest. */
export type Config = Frozen<Awaited<ReturnType<typeof resolveConfig>>['config']>
export type SocketConfig = Config['ipc']
export type ServiceConfig = Config['service']
export type ServiceRefusal = ServiceConfig['refusals'][number]
export type ShareConfig = NonNullable<Config['share']>

export type { TokenFileConfig }
export type TokenFileFormat = TokenFileConfig['format']

/** A shorter value of a header or a field is a word. */
const MIN_LITERAL_SECRET = 8

/**
 * Every secret in the clear, also as HTTP Basic has it: no log may show one. Headers and fields may hold
 * secrets, too. Keys of certificates are never sent.
 */
export function revealAll({ credentials, share, service, request: { proxy } }: Config): string[] {
  const password = proxy ? proxy.password : null
  const login = { apiKey: new Secret((proxy && proxy.user) || ''), apiSecret: password }
  const shared = [share?.password, share?.key, share?.sentinel?.password]
  const parameters = Object.entries(service.parameters).filter(([name]) => NAME_OF_SECRET.test(name))
  const written = [...Object.values(service.headers), ...parameters.map(([, value]) => value)]
  return [
    ...sentTexts(credentials),
    ...(password ? [basicOf(login, { isEncoded: false })] : []),
    ...[password, ...shared].flatMap((secret) => secret?.reveal() ?? []),
    ...written
      .filter((value) => typeof value === 'string')
      .filter((text) => text.length >= MIN_LITERAL_SECRET),
  ]
}
