// A process that loads a configuration and prints its file, base URL and warnings, or all the faults.
import { loadConfig } from '../../src/config/load.ts'

const [configPath] = process.argv.slice(2)
try {
  const { service, read } = await loadConfig({ configPath, env: process.env })
  process.stdout.write([`${read.file} ${service.baseUrl}`, ...read.warnings, ''].join('\n'))
} catch (error) {
  process.stdout.write(`${(error as Error).message}\n`)
}
