// A process that loads a configuration and prints what came of it: the base URL, or all the faults.
import { loadConfig } from '../../src/config/load.ts'

const [configPath] = process.argv.slice(2)
try {
  const { file, baseUrl } = await loadConfig({ configPath, env: process.env })
  process.stdout.write(`${file} ${baseUrl}\n`)
} catch (error) {
  process.stdout.write(`${(error as Error).message}\n`)
}
