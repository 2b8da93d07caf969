// Answers of the service that give no token.
import type { FetchOutcome } from '../../src/token/outcome.ts'

export const failures = {
  network: { kind: 'transient', reason: 'network', detail: 'connect ECONNREFUSED' },
  timeout: { kind: 'transient', reason: 'timeout', detail: 'No answer within 15 s' },
  rejected: { kind: 'transient', reason: 'rejected', detail: 'Forbidden', status: 403 },
  inactive: {
    kind: 'permanent',
    reason: 'account-inactive',
    detail: 'Your account is not active',
    status: 500,
  },
  notFound: { kind: 'permanent', reason: 'account-not-found', detail: 'Account not found', status: 404 },
} as const satisfies Record<string, FetchOutcome>
