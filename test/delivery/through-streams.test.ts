// The protocols without the lean path (accept.ts and direct-write.ts of src/delivery/connections): the same tests, and thus the same answers.
process.env['KYC_TOKEND_TEST_STREAMS'] = 'yes'

await import('./ipc-server.test.ts')
await import('./http-server.test.ts')
await import('./hostile.test.ts')
await import('./users.test.ts')
await import('./http-attacks.test.ts')
