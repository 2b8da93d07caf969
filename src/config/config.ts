// The configuration as the rest of the program sees it: read, validated, resolved, read-only.
import { sentTexts } from './credentials.ts'
import { NAME_OF_SECRET, type Secret } from '../lib/secret.ts'
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

/** A shorter value of a header or a field is a word. */
const isLongEnough = (literal: string): boolean => literal.length >= 8

/**
 * Every secret in the clear, also as HTTP Basic has it: no log may show one. Headers and fields may hold
 * secrets, too. Keys of certificates are never sent.
 */
export function revealAll({ credentials, share, service, request: { proxy } }: Config): string[] {
  const ofProxy = proxy && proxy.password ? loginTexts(proxy.user ?? '', proxy.password.reveal()) : []
  const ofShare = [share?.password, share?.key, share?.sentinel?.password]
  const parameters = Object.entries(service.parameters).filter(([name]) => NAME_OF_SECRET.test(name))
  const literals = [...Object.values(service.headers), ...parameters.map(([, value]) => value)]
  return [
    ...sentTexts(credentials),
    ...ofProxy,
    ...ofShare.flatMap((secret) => secret?.reveal() ?? []),
    ...literals.filter((value) => typeof value === 'string').filter(isLongEnough),
  ]
}

/** A password as it is, and with its user as HTTP Basic has it. */
function loginTexts(user: string, password: string): string[] {
  return [password, Buffer.from(`${user}:${password}`).toString('base64')]
}
