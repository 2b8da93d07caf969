// The TLS context of a connection: its authorities and its certificate. Made once for all connections of a kind, since each would take memory.
import type { SecureContext } from 'node:tls'
import { certificatesIn } from './pem.ts'

/**
 * Trusts the authorities that Node knows (and NODE_EXTRA_CA_CERTS), and those of `ca` beside them; null: none. Shows the
 * certificate `cert`, where it is given with its key. All are PEM. Throws where certificate and key do not fit together.
 */
export async function createSecureContext(
  ca: string | null,
  own: { cert: string; key: string } | null = null,
): Promise<SecureContext> {
  const tls = await import('node:tls')
  const secureContext = tls.createSecureContext({ ...own })
  if (ca === null) return secureContext
  const authorities = certificatesIn(ca)
  const context = secureContext.context as { addCACert?: (pem: string) => void }
  const { addCACert } = context
  // The documented way has Node's 150 authorities read again from text: 35 ms in which nothing is answered, and 1.5 MB.
  if (addCACert === undefined)
    return tls.createSecureContext({ ...own, ca: [...tls.getCACertificates('default'), ...authorities] })
  for (const pem of authorities) addCACert.call(context, pem)
  return secureContext
}
