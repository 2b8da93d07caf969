// The TLS context of a connection: its authorities and its certificate. Made once and not for each connection, since each would take memory.
import type { SecureContext } from 'node:tls'

/**
 * Trusts the authorities that Node knows (and NODE_EXTRA_CA_CERTS), and these beside them. Shows the certificate
 * `cert`, where it is given with its key. All are PEM. Throws where certificate and key do not fit together.
 */
export async function createSecureContext(
  authorities: readonly string[],
  own: { cert: string; key: string } | null = null,
): Promise<SecureContext> {
  const tls = await import('node:tls')
  const secureContext = tls.createSecureContext({ ...own })
  if (authorities.length === 0) return secureContext
  const context = secureContext.context as { addCACert?: (pem: string) => void }
  const { addCACert } = context
  // The documented way has Node's 150 authorities read again from text: 35 ms in which nothing is answered, and 1.5 MB.
  if (addCACert === undefined)
    return tls.createSecureContext({ ...own, ca: [...tls.getCACertificates('default'), ...authorities] })
  for (const pem of authorities) addCACert.call(context, pem)
  return secureContext
}
