// The store as `check` sees it: what it is, and whether this host may use it. Leaves no key behind.
import { randomHex } from '../lib/crypto.ts'
import { aclLine, formatServers, openStore, StoreError, type StoreSettings } from './store.ts'

/** All that a check writes is gone after this time, whatever happens. */
const SHORT_MS = 1_000

/** A sentence without its subject, the store, and with the remedy if one is needed. */
interface StoreFinding {
  readonly level: 'ok' | 'fault'
  readonly sentence: string
}

/** Connects, and uses every right that a host needs. Throws no error of the store. */
export async function checkStore(
  settings: StoreSettings,
  around: Parameters<typeof openStore>[1],
): Promise<StoreFinding[]> {
  const key = `${settings.prefix}:3:{check-${randomHex(16)}}:lease`
  const store = await openStore(settings, around)
  try {
    const server = describe(await store.info())
    await store.swap(key, '', 'check', SHORT_MS)
    const { lease } = await store.read({ record: key, lease: key })
    await store.swap(key, lease, '', SHORT_MS)
    return server.level === 'ok'
      ? [server, { level: 'ok', sentence: 'lets this host read and write' }]
      : [server]
  } catch (error) {
    if (!(error instanceof StoreError)) throw error
    const where = `at ${formatServers(settings.servers)}: ${error.message}. Check`
    const rights = `share.user and share.password; these rights are needed: ${aclLine(settings)}`
    const sentence =
      error.kind === 'denied' ? `denies access ${where} ${rights}` : `cannot be used ${where} ${WAY}`
    return [{ level: 'fault', sentence }]
  } finally {
    store.close()
  }
}

const WAY =
  'share.servers, the way from this host, and share.tls: false if the server speaks no TLS; else caFile, ' +
  'serverName, certFile and key'

function describe(info: string): StoreFinding {
  const field = (name: string): string | undefined => new RegExp(`^${name}:(.*?)\r?$`, 'm').exec(info)?.[1]
  const valkey = field('valkey_version')
  const version = valkey === undefined ? `Redis ${field('redis_version')}` : `Valkey ${valkey}`
  const role = field('role') ?? 'unknown'
  const master = 'name the master in share.servers, or set share.sentinel'
  return role === 'master'
    ? { level: 'ok', sentence: `is ${version}, role ${role}` }
    : { level: 'fault', sentence: `is ${version} and a ${role}, which takes no writes: ${master}` }
}
