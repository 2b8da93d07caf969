// What holds where the configuration says nothing. The schema, the table of settings and the program all read it here.

export const defaults = {
  request: { timeout: '15s', connectTimeout: '5s', caFile: null },
  refresh: { maxAge: '15m' },
  retry: { initialDelay: '1s', maxDelay: '5m' },
  tokenFiles: [{ path: 'token' }],
  tokenFile: { format: 'raw', mode: '0600', owner: null, group: null },
  ipc: { path: 'ipc.sock' },
  http: { path: 'http.sock' },
  socket: {
    mode: '0600',
    group: null,
    allow: { users: [], groups: [] },
    maxConnections: 4096,
    maxConnectionsPerUser: 1024,
    maxRequestsPerSecond: null,
  },
  alerts: { remindAfter: ['1h', '6h', '24h'] },
  log: { level: 'info', format: 'auto' },
} as const
