// The store as `check` sees it: server, role, memory policy, clock and rights. Leaves no key behind.
import type { ShareConfig } from '../config/config.ts'
import type { Clock } from '../lib/clock.ts'
import { fault, ok, warning, type Finding, clockFindings } from '../host/finding.ts'
import { randomHex } from '../lib/crypto.ts'
import { aclLine, formatServers, openRedisStore } from './redis-store.ts'
import { StoreError, type Store } from './store.ts'

/** Ages are counted on the store's clock and shown on the host's: the clocks must not differ by more. */
const CLOCK_OFF_MS = 2_000
/** All that a check writes is gone after this time, whatever happens. */
const SHORT_MS = 1_000
/** The longest wait for the subscription, which takes milliseconds. */
const SUBSCRIBE_MS = 5_000
const WRITE_EVERY_MS = 100

/** Reports what the store is and whether this host may use it. No error of the store is thrown. */
export async function checkStore(
  share: ShareConfig,
  surroundings: { readonly clock: Clock; readonly random: () => number },
): Promise<Finding[]> {
  // A name that no account has.
  const accountKey = `check-${randomHex(16)}`
  const store = await openRedisStore(share, { ...surroundings, accountKey })
  try {
    const server = describe(await store.info())
    if (server.some(({ level }) => level === 'fault')) return server
    const aheadMs = await tryAll(store, surroundings.clock)
    const sentence = (off: string): string => `has a clock ${off} this host's: set both`
    return [
      ...server,
      ok('lets this host read, write, publish and subscribe'),
      ...clockFindings(aheadMs, { leastMs: CLOCK_OFF_MS, sentence }),
    ]
  } catch (error) {
    return [faultOf(asStoreError(error), share)]
  } finally {
    // Every key expires by itself within half a minute.
    await store.forget().catch(asStoreError)
    store.close()
  }
}

/** Throws any other error, which is an internal one. */
function asStoreError(error: unknown): StoreError {
  if (error instanceof StoreError) return error
  throw error
}

function faultOf({ kind, message }: StoreError, share: ShareConfig): Finding {
  const what = `at ${formatServers(share.servers)}: ${message}. Check`
  if (kind === 'denied')
    return fault(
      `denies access ${what} share.user and share.password; these rights are needed: ${aclLine(share)}`,
    )
  return fault(
    `cannot be used ${what} share.servers, the way from this host, and share.tls: false if the server ` +
      'speaks no TLS; else caFile, serverName, certFile and key',
  )
}

function describe(info: string): Finding[] {
  const field = (name: string): string | undefined => new RegExp(`^${name}:(.*?)\r?$`, 'm').exec(info)?.[1]
  const product = field('valkey_version') === undefined ? 'Redis' : 'Valkey'
  const version = field('valkey_version') ?? field('redis_version') ?? 'of an unknown version'
  const role = field('role') ?? 'unknown'
  const policy = field('maxmemory_policy') ?? 'noeviction'
  const findings = [ok(`is ${product} ${version}, role ${role}`)]
  if (role !== 'master')
    findings.push(
      fault(`is a ${role}, which takes no writes: name the master in share.servers, or set share.sentinel`),
    )
  if (policy !== 'noeviction' && !policy.startsWith('volatile-'))
    findings.push(
      warning(
        `has maxmemory-policy ${policy}, which may evict the token (it is put back within 15 s): ` +
          'use a server with noeviction or volatile-lru',
      ),
    )
  return findings
}

/** Uses every right that a host needs. Resolves with the lead of the store's clock, in ms. */
async function tryAll(store: Store, clock: Clock): Promise<number> {
  const heard = new AbortController()
  store.listen((what) => what === 'message' && heard.abort())
  const request = { drop: null, known: { fence: 0, id: randomHex(8) }, id: randomHex(8), kept: null }
  await store.acquire({ ...request, leaseMs: SHORT_MS })
  const beforeMs = clock.now().wallMs
  const { nowMs } = await store.poll(request)
  const aheadMs = nowMs - (beforeMs + clock.now().wallMs) / 2
  for (let fence = 1; fence * WRITE_EVERY_MS <= SUBSCRIBE_MS && !heard.signal.aborted; fence += 1) {
    await store.write({ ...request, record: { text: `${fence} ${request.id} x`, keepMs: SHORT_MS } })
    await clock.sleep(WRITE_EVERY_MS, heard.signal)
  }
  if (!heard.signal.aborted) throw new StoreError('denied', 'the subscription was refused, or took too long')
  return aheadMs
}
