// The configuration as the rest of the program sees it: read, validated, resolved, frozen.
import { basicOf, type Secret } from '../lib/secret.ts'
import type { resolveConfig } from './resolve.ts'
import type { Settings } from './schema.ts'

type Frozen<T> = T extends Secret ? T : { readonly [Key in keyof T]: Frozen<T[Key]> }

/** Settings keep the names and meanings of the schema; `resolveConfig` describes what is more than what is written. */
export type Config = Frozen<Awaited<ReturnType<typeof resolveConfig>>['config']>
export type SocketConfig = Config['ipc']
export type ServiceConfig = Config['service']
export type ServiceRefusal = ServiceConfig['refusals'][number]
export type ShareConfig = NonNullable<Config['share']>

type TokenFileSettings = Settings['tokenFiles'][number]
export type TokenFileFormat = TokenFileSettings['format']
export interface TokenFileConfig extends Readonly<Pick<TokenFileSettings, 'format' | 'mode'>> {
  /** Absolute. */
  readonly path: string
  /** With the format `template`, and only then; read when the configuration was. */
  readonly template?: string | null
  /** Numeric ids; null: as the file is created. */
  readonly uid: number | null
  readonly gid: number | null
}

/** A shorter value of a header is a word. */
const MIN_HEADER_SECRET = 8

/** Every secret in the clear, also as HTTP Basic has it: no log may show one. Headers may hold secrets, too (`X-Api-Key`). */
export function revealAll({ credentials, share, service }: Config): string[] {
  const shared = [share?.password, share?.key, share?.sentinel?.password, share?.tls?.key]
  const secrets = [credentials.apiKey, credentials.apiSecret, ...shared]
  const headers = Object.values(service.headers).filter((value) => value.length >= MIN_HEADER_SECRET)
  return [basicOf(credentials), ...headers, ...secrets.flatMap((secret) => secret?.reveal() ?? [])]
}
