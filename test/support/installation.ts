// The package on a machine with a real systemd, beside a stand-in of the service: for tests that act as its administrator.
import { copyFileSync, mkdirSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, describe } from 'vitest'
import { block } from '../manual/manual.ts'
import { bootMachine, whyNoMachine, type Finished, type Machine } from './machine.ts'
import { buildPackage } from './package.ts'
import { expectUntil } from './until.ts'

export const CONFIG = '/etc/kyc-tokend/kyc-tokend.config.json'
/** A good configuration for the stand-in. */
export const config = {
  baseUrl: 'http://127.0.0.1:8099',
  credentials: { apiKey: 'sandbox-key', apiSecret: 'sandbox-secret' },
  tokenFiles: [{ path: 'token', mode: '0640' }],
}

export interface Installation {
  readonly machine: Machine
  /** The command that installs a version, which says what the maintainer scripts say. */
  readonly install: (version: string) => string
  /** Writes a configuration as an administrator would. */
  readonly configure: (settings: object, file?: string) => Promise<void>
  /** Writes a drop-in of a unit, or removes it. */
  readonly dropIn: (name: string, text: string | undefined, unit?: string) => Promise<void>
  /** Starts a stand-in of the service as the unit of this name. */
  readonly startStandIn: (unit?: string, port?: number) => Promise<void>
  /** Sets the answers of the stand-in from now on. */
  readonly scenario: (name: string, port?: number) => Promise<void>
  /** Requests for a token that a stand-in has logged. */
  readonly requests: (unit?: string) => Promise<number>
  /** The token as the full program gets it from the daemon. */
  readonly fullToken: (as: string) => Promise<string>
  readonly journal: (unit: string) => Promise<string>
  /** Resolves with a unit's journal once the text is in it: what was written before may be read there only a moment later. */
  readonly expectJournal: (unit: string, text: string | RegExp) => Promise<string>
  /** Starts of a unit by systemd, from its journal. */
  readonly starts: (unit?: string) => Promise<number>
  readonly show: (property: string, unit?: string) => Promise<string>
  readonly modesOf: (...files: string[]) => Promise<string[]>
  /** Runs the commands of a block of the manual; root needs no sudo. */
  readonly follow: (name: string, as?: string) => Promise<string>
  /** Runs a shell script in the machine, whatever its status. */
  readonly attempt: (script: string, as?: string) => Promise<Finished>
}

/** A suite with a machine of its own, whose tests build on each other; skipped, with a line, where none can be booted. */
export function describeInstallation(
  name: string,
  { versions = ['1.0.0'], isInstalled = true }: { versions?: readonly string[]; isInstalled?: boolean },
  tests: (installation: Installation) => void,
): void {
  const why = whyNoMachine()
  const isRequired = process.env['KYC_TOKEND_REQUIRE_SYSTEMD'] === '1'
  if (why !== undefined && !isRequired) process.stderr.write(`${name}: skipped, because ${why}\n`)
  let booted: Machine | undefined
  let work = ''
  const installation = createInstallation(() => {
    if (booted === undefined) throw new Error('The machine is not booted yet')
    return booted
  })

  // oxlint-disable-next-line vitest/valid-title -- it is a string, which the rule cannot see
  describe.skipIf(why !== undefined && !isRequired)(name, () => {
    beforeAll(async () => {
      work = await mkdtemp(path.join(tmpdir(), 'kyc-tokend-test-'))
      const packages = await Promise.all(
        versions.map(async (version) => {
          const out = path.join(work, version)
          mkdirSync(out)
          return buildPackage(out, { version })
        }),
      )
      booted = await bootMachine()
      for (const file of packages) copyFileSync(file, booted.path(`/root/${path.basename(file)}`))
      if (isInstalled) await booted.sh(installation.install(versions[0]!), { timeoutMs: 170_000 })
    })
    afterEach(async ({ task }) => {
      if (task.result?.state === 'fail')
        process.stderr.write(await booted!.sh("journalctl -o short-precise -n 60 -u 'kyc-tokend*'"))
    })
    afterAll(async () => {
      await rm(work, { recursive: true, force: true })
      await booted?.stop()
    })
    tests(installation)
  })
}

function createInstallation(machineNow: () => Machine): Installation {
  const sh: Machine['sh'] = async (script, options) => machineNow().sh(script, options)
  const node = (script: string): string => `/usr/lib/kyc-tokend/node -e "${script}"`
  const journal = async (unit: string): Promise<string> => {
    await sh('journalctl --sync')
    return sh(`journalctl -u ${unit} -o cat`)
  }
  const expectJournal = async (unit: string, text: string | RegExp): Promise<string> =>
    expectUntil(`${text} in the journal of ${unit}`, async () => {
      const found = await journal(unit)
      return (typeof text === 'string' ? found.includes(text) : text.test(found)) && found
    })
  return {
    get machine() {
      return machineNow()
    },
    // Container images leave documentation out, but the examples are to be tried.
    install: (version) =>
      `dpkg --path-include='/usr/share/doc/kyc-tokend/*' -i /root/kyc-tokend_${version}_amd64.deb`,
    async configure(settings, file = CONFIG) {
      await sh(`umask 027; cat >${file}; chgrp kyc-tokend ${file}`, { input: JSON.stringify(settings) })
    },
    async dropIn(name, text, unit = 'kyc-tokend.service') {
      const folder = `/etc/systemd/system/${unit}.d`
      if (text === undefined)
        await sh(`rm ${folder}/${name}.conf; rmdir --ignore-fail-on-non-empty ${folder}`)
      else await sh(`mkdir -p ${folder}; cat >${folder}/${name}.conf`, { input: `${text}\n` })
      await sh('systemctl daemon-reload')
    },
    async startStandIn(unit = 'stand-in', port = 8099) {
      await sh(`systemd-run --unit=${unit} kyc-tokend sandbox --port ${port} --token-lifetime 1h`)
      await expectJournal(unit, 'Requests:')
    },
    async scenario(name, port = 8099) {
      const url = `http://127.0.0.1:${port}/scenario`
      await sh(
        node(`fetch('${url}', { method: 'PUT', body: '${name}' }).then(({ ok }) => ok || process.exit(1))`),
      )
    },
    requests: async (unit = 'stand-in') => (await journal(unit)).split('POST /token').length - 1,
    fullToken: async (as) => (await sh('kyc-tokend token --wait 10s', { as })).trim(),
    journal,
    expectJournal,
    starts: async (unit = 'kyc-tokend.service') =>
      Number(
        (await sh(`journalctl --sync; journalctl -u ${unit} -o cat | grep -c '^Starting ' || true`)).trim(),
      ),
    show: async (property, unit = 'kyc-tokend.service') =>
      (await sh(`systemctl show -p ${property} --value ${unit}`)).trim(),
    modesOf: async (...files) => (await sh(`stat -c '%a %U:%G' ${files.join(' ')}`)).trim().split('\n'),
    follow: async (name, as) =>
      sh(
        `cd /root 2>/dev/null || cd /; ${block(name).code.replaceAll('sudo ', '')}`,
        as === undefined ? {} : { as },
      ),
    attempt: async (script, as) => machineNow().run(['sh', '-euc', script], as === undefined ? {} : { as }),
  }
}
