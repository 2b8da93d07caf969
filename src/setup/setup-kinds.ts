// The kinds of service that `setup` knows, in the words of a vendor's page.

export const kinds = {
  json: 'JSON with key and secret',
  oauth2: 'OAuth2 client credentials',
  certificate: 'client certificate (mutual TLS)',
  assertion: 'signed assertion (JWT)',
  other: 'another way',
} as const
export type Kind = keyof typeof kinds
