// The protocols without the lean path (src/delivery/connections/accept.ts): the same tests, and thus the same answers.
process.env['KYC_TOKEND_TEST_STREAMS'] = 'yes'

await import('./ipc-server.test.ts')
await import('./http-server.test.ts')
await import('./hostile.test.ts')
await import('./users.test.ts')
