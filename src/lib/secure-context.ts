// The TLS context of a connection: its authorities and its certificate. Made once and not for each connection, since each would take memory.
import type { SecureContext } from 'node:tls'

/**
 * Trusts the authorities that Node knows (and NODE_EXTRA_CA_CERTS), and those of `ca` beside them. Shows the certificate
 * `cert`, where it is given with its key. All are PEM. Throws where certificate and key do not fit together.
 */
export async function createSecureContext(
  ca: string | null,
  own: { cert: string; key: string } | null = null,
): Promise<SecureContext> {
  const tls = await import('node:tls')
  const trusted = ca === null ? {} : { ca: [...tls.getCACertificates('default'), ca] }
  return tls.createSecureContext({ ...trusted, ...own })
}
