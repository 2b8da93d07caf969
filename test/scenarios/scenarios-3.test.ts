// A third of the scenarios, by the number in this file's name.
await import('./scenarios.test.ts')
