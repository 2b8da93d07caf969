// What to do about each reason, in plain words: one place for alerts, status, explain and check.
import type { Reason } from './outcome.ts'

/** Actions for refusals are those of the interface description, section 7. */
const remedies: Readonly<Record<Reason, string>> = {
  'account-inactive':
    "Contact the service's support and have the account activated, then run `kyc-tokend refresh`; until then " +
    'the service is not asked again',
  'account-not-found':
    'Check `baseUrl`, `credentials.apiKey` and `credentials.apiSecret` against the dashboard of the account and reload ' +
    "(SIGHUP); if they are right, contact the service's support, then run `kyc-tokend refresh`; until then the service " +
    'is not asked again',
  rejected:
    'Check `baseUrl` and the credentials: the service does not take requests of this kind at this address; it is asked ' +
    'again every 5 to 10 minutes, and at once with `kyc-tokend refresh`',
  'rate-limited':
    'Nothing to do if it passes: kyc-tokend waits as long as the service asked for; if it goes on, find out what else uses ' +
    'these credentials',
  'server-error':
    "Nothing to do if it passes: kyc-tokend goes on asking; if it lasts, look at the service's status page or contact its " +
    'support',
  'malformed-answer':
    'Check that `baseUrl` leads to the service itself and not to a login page, a proxy or a redirect; if it does, contact ' +
    "the service's support",
  network:
    'Check from this host that the name in `baseUrl` resolves and that nothing (firewall, proxy, routing) stands between; ' +
    '`kyc-tokend check --live` tries it',
  timeout:
    'Nothing to do if it passes; if it lasts, check the network to the service, or raise `request.timeout` or ' +
    '`request.connectTimeout`',
  tls:
    "Check this host's clock and that `baseUrl` has the service's own name; where a proxy or the service has a private " +
    'authority, give its certificate as `request.caFile`',
}

/** What a person can do about it: a sentence without a full stop, which names settings and commands. */
export function remedyFor(reason: Reason): string {
  return remedies[reason]
}
