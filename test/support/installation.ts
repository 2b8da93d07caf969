// The package on a machine with a real systemd, beside a stand-in of the service, for its administrator.
import { copyFileSync } from 'node:fs'
import path from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect } from 'vitest'
import { block } from '../manual/manual.ts'
import { brokenByRecords, recordsOfJournal } from '../rules/records.ts'
import { bootMachine, whyNoMachine, type Machine } from './machine.ts'
import { packageOf } from './package.ts'
import type { Ended } from './run-cli.ts'
import { expectUntil } from './until.ts'

export const CONFIG = '/etc/kyc-tokend/kyc-tokend.config.json'
/** A good configuration for the stand-in. */
export const config = {
  baseUrl: 'http://127.0.0.1:8099',
  credentials: { apiKey: 'sandbox-key', apiSecret: 'sandbox-secret' },
  tokenFiles: [{ path: 'token', mode: '0640' }],
}

type Installation = ReturnType<typeof createInstallation>

/** A suite on one machine, whose tests build on each other; skipped, with a line, where none boots. */
export function describeInstallation(
  name: string,
  /** The packages that lie ready, and whether the first one is installed, with a member of the clients' group. */
  { versions = ['9.0.0'], isInstalled = true }: { versions?: readonly string[]; isInstalled?: boolean },
  tests: (installation: Installation) => void,
): void {
  const why = whyNoMachine()
  const isRequired = process.env['KYC_TOKEND_REQUIRE_SYSTEMD'] === '1'
  if (why !== undefined && !isRequired) process.stderr.write(`${name}: skipped, because ${why}\n`)
  let booted: Machine | undefined
  const installation = createInstallation(() => booted!)

  // oxlint-disable-next-line vitest/valid-title -- it is a string, which the rule cannot see
  describe.skipIf(why !== undefined && !isRequired)(name, () => {
    beforeAll(async () => {
      const packages = []
      for (const version of versions) packages.push(await packageOf(version))
      booted = await bootMachine()
      for (const file of packages) copyFileSync(file, booted.path(`/root/${path.basename(file)}`))
      const users = 'useradd stranger; useradd -G kyc-token member'
      if (isInstalled) await booted.sh(`${installation.install(versions[0]!)}; ${users}`)
    })
    afterEach(async ({ task }) => {
      if (task.result?.state === 'fail')
        process.stderr.write(await booted!.sh("journalctl -o short-precise -n 60 -u 'kyc-tokend*' || true"))
    })
    afterAll(async () => {
      if (booted === undefined) return
      const journal = await booted.sh("journalctl --sync; journalctl -o json -u 'kyc-tokend*'")
      await booted.stop()
      for (const [unit, records] of recordsOfJournal(journal))
        expect({ unit, broken: brokenByRecords(records) }).toEqual({ unit, broken: [] })
    })
    tests(installation)
  })
}

function createInstallation(machineNow: () => Machine) {
  const run: Machine['run'] = async (command, options) => machineNow().run(command, options)
  const sh: Machine['sh'] = async (script, options) => machineNow().sh(script, options)
  /** Runs a shell script in the machine, whatever its status. */
  const attempt = async (script: string, as?: string): Promise<Ended> => run(['sh', '-euc', script], { as })
  const show = async (property: string, unit = 'kyc-tokend.service'): Promise<string> =>
    (await sh(`systemctl show -p ${property} --value ${unit}`)).trim()
  const journal = async (unit: string): Promise<string> => {
    await sh('journalctl --sync')
    return sh(`journalctl -u ${unit} -o cat`)
  }
  /** Resolves with a unit's journal once the text is in it, which may be a moment after it was written. */
  const expectJournal = async (unit: string, text: string | RegExp): Promise<string> =>
    expectUntil(`${text} in the journal of ${unit}`, async () => {
      const found = await journal(unit)
      return (typeof text === 'string' ? found.includes(text) : text.test(found)) && found
    })
  return {
    machine: machineNow,
    run,
    sh,
    attempt,
    journal,
    expectJournal,
    /**
     * The command that installs a version, which says what the maintainer scripts say. Container images leave
     * documentation out, but the examples are to be tried.
     */
    install: (version: string): string =>
      `dpkg --path-include='/usr/share/doc/kyc-tokend/*' -i /root/kyc-tokend_${version}_amd64.deb`,
    /** Writes a configuration as an administrator would. */
    configure: async (settings: object, file = CONFIG): Promise<void> => {
      await sh(`umask 027; cat >${file}; chgrp kyc-tokend ${file}`, { input: JSON.stringify(settings) })
    },
    /** Writes a drop-in of a unit, or removes it. */
    dropIn: async (name: string, text: string | undefined, unit = 'kyc-tokend.service'): Promise<void> => {
      const folder = `/etc/systemd/system/${unit}.d`
      if (text === undefined)
        await sh(`rm ${folder}/${name}.conf; rmdir --ignore-fail-on-non-empty ${folder}`)
      else await sh(`mkdir -p ${folder}; cat >${folder}/${name}.conf`, { input: `${text}\n` })
      await sh('systemctl daemon-reload')
    },
    /** Starts a stand-in of the service as the unit of this name. */
    startStandIn: async (unit = 'stand-in', port = 8099): Promise<void> => {
      await sh(`systemd-run --unit=${unit} kyc-tokend sandbox --port ${port} --token-lifetime 1h`)
      await expectJournal(unit, 'Requests:')
    },
    /** Sets the answers of the stand-in from now on. */
    scenario: async (name: string, port = 8099): Promise<void> => {
      await sh(`curl --silent --fail --request PUT --data ${name} http://127.0.0.1:${port}/scenario`)
    },
    /** Resolves once a stand-in has logged so many requests for a token, which may be a moment after its answer. */
    expectRequests: async (count: number, unit = 'stand-in'): Promise<void> => {
      const requests = async (): Promise<number> => (await journal(unit)).split('POST /token').length - 1
      await expectUntil(`${count} requests`, async () => (await requests()) >= count)
      expect(await requests()).toBe(count)
    },
    /** The token as the full program gets it from the daemon. */
    fullToken: async (as: string): Promise<string> =>
      (await sh('kyc-tokend token --wait 10s', { as })).trim(),
    show,
    /** Resolves with the process of a unit when it is another than this one. */
    restarted: (pid: string): Promise<boolean> =>
      expectUntil('another process', async () => !['0', pid].includes(await show('MainPID'))),
    modesOf: async (...files: string[]): Promise<string[]> =>
      (await sh(`stat -c '%a %U:%G' ${files.join(' ')}`)).trim().split('\n'),
    /** Runs the commands of a block of the manual; root needs no sudo. */
    follow: async (name: string, as?: string): Promise<string> =>
      sh(`cd /root 2>/dev/null || cd /; ${block(name).code.replaceAll('sudo ', '')}`, { as }),
  }
}
