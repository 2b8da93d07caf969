// The other half of the faults, by the number in this file's name.
await import('./faults.test.ts')
