// Whoever runs code as kyc-tokend swaps links around what root does with the runtime directories: nothing is won.
import { execFileSync } from 'node:child_process'
import { copyFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import { config, describeInstallation } from '../support/installation.ts'
import { lacks } from '../support/lacks.ts'
import { tempDirectory } from '../support/temp-directory.ts'

/** Of each kind: against 2.0.0 seven of ten were won. */
const TRIES = Number(process.env['KYC_TOKEND_RACES'] ?? 3)
const DIRECTORIES = ['/run/kyc-tokend', '/run/kyc-tokend/accounts/eu']
const NAMES = ['ipc.sock', 'http.sock', 'token', 'instance.lock']
const FILES = DIRECTORIES.flatMap((directory) => NAMES.map((name) => `${directory}/${name}`))
const FOLDERS = [
  '/run/kyc-tokend/accounts',
  '/run/kyc-tokend/accounts/eu',
  '/var/lib/kyc-tokend/accounts',
  '/var/lib/kyc-tokend/accounts/eu',
]
const SOCKETS = ['', '@eu']
  .flatMap((suffix) => ['', '-http'].map((kind) => `kyc-tokend${kind}${suffix}.socket`))
  .join(' ')
/** Links keep sockets from being bound, and many failures in a row are no fault here. */
const START = `systemctl reset-failed; systemctl start ${SOCKETS} || true; systemctl start --no-block kyc-tokend kyc-tokend@eu`
const STOP = "systemctl stop 'kyc-tokend*' || true"
const INFO = '/var/lib/dpkg/info/kyc-tokend'
/** As 2.0.0 had them. */
const GIVE_BACK = `export DPKG_MAINTSCRIPT_PACKAGE=kyc-tokend; ${INFO}.prerm upgrade 2.0.0`

/** What root does, again and again. */
const ACTS = {
  'a boot': `${STOP}; mv /run/kyc-tokend /run/was; rm -rf /run/was; systemd-tmpfiles --create kyc-tokend.conf || true; ${START}`,
  'a restart': `systemctl restart ${SOCKETS} kyc-tokend kyc-tokend@eu || true; ${STOP}; ${START}`,
  'an upgrade from 2.0.0': `${GIVE_BACK}; ${INFO}.postinst configure 2.0.0; ${STOP}; ${START}`,
  // Without what would remove the configuration that the next try needs.
  'a purge': `export DPKG_MAINTSCRIPT_PACKAGE=kyc-tokend; ${STOP}; sed 's:rm -rf /etc/kyc-tokend:rm -rf:' ${INFO}.postrm | sh -s purge || true
    systemd-tmpfiles --create kyc-tokend.conf || true`,
}

const isLeftOut = lacks('gcc')

describeInstallation('the daemon’s user, taken over', {}, (installation) => {
  const { sh } = installation
  const ofRoot = (): Promise<string> => sh("find /srv/of-root -printf '%p %u:%g %m %n %s\\n' | sort")

  /** Does it so often while links are swapped. */
  async function raced(act: string, tries = TRIES): Promise<void> {
    const racers = [
      ['sockets', '/srv/of-root/victim', FILES],
      ['folders', '/srv/of-root', FOLDERS],
    ] as const
    for (const [name, target, paths] of racers)
      await sh(
        `systemd-run --quiet --unit=race-${name} -p User=kyc-tokend -p Group=kyc-tokend /usr/swap-links ${target} ${paths.join(' ')}`,
      )
    try {
      await sh(`for try in $(seq ${tries}); do ${act}; done`, { timeoutMs: 600_000 })
    } finally {
      await sh("systemctl stop 'race-*'; systemctl reset-failed")
    }
  }

  it.skipIf(isLeftOut)('is on a machine with two accounts', async () => {
    const program = path.join(await tempDirectory('disk'), 'swap-links')
    const source = path.join(import.meta.dirname, '../support/swap-links.c')
    execFileSync('gcc', ['-O2', '-o', program, source])
    copyFileSync(program, installation.machine.path('/usr/swap-links'))
    await sh('mkdir -m 755 /srv/of-root; umask 077; echo secret >/srv/of-root/victim')
    await installation.startStandIn()
    await installation.configure(config)
    await installation.configure(config, '/etc/kyc-tokend/accounts/eu.json')
    await sh(START)
    expect(await ofRoot()).toContain('/srv/of-root/victim root:root 600 1 7\n')
  })

  // Else the test would see nothing.
  it.skipIf(isLeftOut)('becomes owner of a file of root where the directory is its own', async () => {
    const before = await ofRoot()
    await sh(`${STOP}; ${GIVE_BACK}`)
    const isWon = '[ "$(stat -c %U /srv/of-root/victim)" = root ] || break'
    await raced(`systemctl reset-failed; systemctl restart kyc-tokend.socket || true; ${isWon}`, 200)
    expect(await ofRoot()).not.toBe(before)
    await sh(`chown -R root:root /srv/of-root; chmod 600 /srv/of-root/victim
      ${ACTS['an upgrade from 2.0.0']}`)
    expect(await ofRoot()).toBe(before)
  })

  it.skipIf(isLeftOut).each(Object.entries(ACTS))(
    `wins nothing at %s (${TRIES} tries)`,
    { timeout: 60_000 + 20_000 * TRIES },
    async (_, act) => {
      const before = await ofRoot()
      await raced(act)
      expect(await ofRoot()).toBe(before)
      // Of the daemon's user alone nothing else is left on the machine.
      const elsewhere =
        "find / -xdev -user kyc-tokend -not -path '/proc/*' -not -path '/var/lib/kyc-tokend*' -not -path '/run/kyc-tokend*'"
      expect(await sh(elsewhere)).toBe('')
      await sh(
        `rm -rf /run/kyc-tokend /var/lib/kyc-tokend; systemd-tmpfiles --create kyc-tokend.conf; ${STOP}; ${START}`,
      )
      expect(await sh('kyc-tokend token --wait 10s; kyc-tokend token --wait 10s --account eu')).toMatch(
        /ey[^]*ey/,
      )
    },
  )
})
