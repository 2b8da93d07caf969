// The described services that come with the program: that of the interface description, and the presets.
import { ENDPOINT } from './base-url.ts'

/** The service of the interface description: the default of each key. */
export const STANDARD = {
  tokenUrl: ENDPOINT,
  send: 'json',
  names: { apiKey: 'apiKey', apiSecret: 'apiSecret' },
  parameters: {},
  headers: {},
  token: 'accessToken',
  lifetime: null,
  expires: null,
  refusals: [
    { status: 500, says: 'Your account is not active', in: 'detail', reason: 'account-inactive' },
    { status: 404, says: 'Account not found', in: 'detail', reason: 'account-not-found' },
  ],
  refusedBy: [401],
  use: { header: 'Authorization', prefix: 'Bearer ' },
  assertion: null,
} as const

/** The client credentials grant (RFC 6749, section 4.4). */
export const OAUTH2 = {
  send: 'basic',
  // Of use with another `send` only (section 2.3.1).
  names: { apiKey: 'client_id', apiSecret: 'client_secret' },
  parameters: { grant_type: 'client_credentials' },
  token: 'access_token',
  lifetime: 'expires_in',
  refusals: ([400, 401] as const).flatMap(
    (status) =>
      [
        { status, says: 'invalid_client', in: 'error', reason: 'account-not-found' },
        { status, says: 'unauthorized_client', in: 'error', reason: 'account-inactive' },
      ] as const,
  ),
} as const
export const presetNames = ['oauth2'] as const
