// The remedy for each reason, in plain words, for alerts, status, explain and check.
import type { PostponedReason, Reason } from './outcome.ts'

/** Actions for refusals are those of the interface description, section 7. */
const remedies: Readonly<Record<Reason | PostponedReason, string>> = {
  'account-inactive':
    "Contact the service's support and have the account activated, then run `kyc-tokend refresh`; until then " +
    'the service is not asked again',
  'account-not-found':
    'Check `baseUrl`, `service` (if set), `credentials.apiKey` and `credentials.apiSecret` against the dashboard of the ' +
    "account and reload (SIGHUP); if they are right, contact the service's support, then run `kyc-tokend refresh`; until then the service " +
    'is not asked again',
  rejected:
    'Check `baseUrl`, `service` (if set) and the credentials: the service rejects requests of this kind at this address; kyc-tokend asks ' +
    'again every 5 to 10 minutes, and at once with `kyc-tokend refresh`',
  'rate-limited':
    'Nothing to do if it passes: kyc-tokend waits as long as the service asked for; if it goes on, find out what else uses ' +
    'these credentials',
  'server-error':
    "Nothing to do if it passes: kyc-tokend goes on asking; if it lasts, read the service's status page or contact its " +
    'support',
  'malformed-answer':
    'Check that `baseUrl` (or `service.tokenUrl`) leads to the service itself and not to a login page, a proxy or a redirect; if it does, contact ' +
    "the service's support",
  network:
    'Check from this host that the name in `baseUrl` (or `service.tokenUrl`) resolves and that no firewall, proxy or route blocks the connection; ' +
    '`kyc-tokend check --live` tries it',
  timeout:
    'Nothing to do if it passes; if it lasts, check the network to the service, or raise `request.timeout` or ' +
    '`request.connectTimeout`',
  tls:
    "Check this host's clock and that `baseUrl` (or `service.tokenUrl`) has the service's own name; where a proxy or the service has a private " +
    'authority, give its certificate as `request.caFile`',
  'share-lost':
    'Nothing to do if it passes: the token is served meanwhile; if it lasts, check share.servers from this host with ' +
    '`kyc-tokend check`, or run `kyc-tokend refresh`',
  'not-asked':
    'Run `kyc-tokend refresh` on a host of the fleet that asks the service (`share.asks`); this one takes over its token',
}

/** The action of a person: a sentence without a full stop, which names settings and commands. */
export function remedyFor(reason: Reason | PostponedReason): string {
  return remedies[reason]
}
