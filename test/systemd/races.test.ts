// An attacker who runs code as kyc-tokend puts links, hard links and other names around what root does: nothing is won.
import { expect, it } from 'vitest'
import { config, describeInstallation } from '../support/installation.ts'

/** Of each kind. */
const TRIES = Number(process.env['KYC_TOKEND_RACES'] ?? 1)
const DIRECTORIES = ['/run/kyc-tokend', '/run/kyc-tokend/accounts/eu']
const NAMES = ['ipc.sock', 'http.sock', 'token', 'alert.json', 'files/token', 'files/alert.json']
const FILES = DIRECTORIES.flatMap((directory) => NAMES.map((name) => `${directory}/${name}`))
const ACCOUNTS = ['/run/kyc-tokend/accounts', '/var/lib/kyc-tokend/accounts']
const FOLDERS = [
  ...DIRECTORIES.map((directory) => `${directory}/files`),
  ...ACCOUNTS.flatMap((folder) => [folder, `${folder}/eu`]),
]
const OWN = '/run/kyc-tokend/files /run/kyc-tokend/accounts/eu/files /var/lib/kyc-tokend'
/**
 * swap-links TARGET PATH...: a socket or a directory of root at a PATH is replaced by a link, between what root makes
 * there and what root does with it next; what is not there is now and then a link before root makes it. Its own links
 * are taken away again, so that the next try begins as the first.
 */
const SWAPPER = `
my ($target, @paths) = @ARGV;
sub put {
  my ($path) = @_;
  symlink $target, "$path.l$$";
  return if rename "$path.l$$", $path;
  # A directory is moved away first.
  if (rename $path, "$path.a$$") {
    rename "$path.l$$", $path;
    select undef, undef, undef, 0.0002;
    unlink $path;
    rename "$path.a$$", $path;
  }
  unlink "$path.l$$";
}
for (my $round = 0; ; $round++) {
  for my $path (@paths) {
    my @found = lstat $path;
    if (!@found) { put($path) if $round % 64 == 0 }
    elsif (-l _) { unlink $path if $round % 8 == 0 }
    elsif (-d _ || $found[4] == 0) { put($path) }
  }
}
`
/** With RuntimeDirectory= the next start would give these names to the attacker. */
const LINKER = `while :; do for own in ${OWN}; do
    ln /run/of-root $own/linked; ln /run/of-root $own/token; chgrp kyc-token $own; chgrp kyc-tokend $own; rm -f $own/linked
  done; done 2>/dev/null`
const SOCKETS = 'kyc-tokend.socket kyc-tokend-http.socket kyc-tokend@eu.socket kyc-tokend-http@eu.socket'
/** Links keep sockets from being bound, and many failures in a row are no fault here. */
const START = `systemctl reset-failed; systemctl start ${SOCKETS} || true; systemctl start --no-block kyc-tokend kyc-tokend@eu`
const STOP = "systemctl stop 'kyc-tokend*' || true"
const INFO = 'export DPKG_MAINTSCRIPT_PACKAGE=kyc-tokend; /var/lib/dpkg/info/kyc-tokend'

/** What root does, again and again. */
const ACTS = {
  'a boot': `${STOP}; mv /run/kyc-tokend /run/was || true; rm -rf /run/was; systemd-tmpfiles --create kyc-tokend.conf; ${START}`,
  'a restart': `systemctl restart ${SOCKETS} kyc-tokend kyc-tokend@eu || true; systemctl restart kyc-tokend kyc-tokend@eu || true`,
  'an upgrade': `${INFO}.postinst configure 2.1.0; ${STOP}; ${START}`,
  // Without what would remove the configuration that the next try needs.
  'a purge': `${STOP}; ${INFO.replace(';', `; sed 's:rm -rf /etc/kyc-tokend:rm -rf:'`)}.postrm | sh -s purge || true; ${START}`,
}

describeInstallation('the daemon’s user, taken over', {}, (installation) => {
  const { sh } = installation
  const ofRoot = (): Promise<string> =>
    sh("find /srv/of-root /run/of-root -printf '%p %u:%g %m %s\\n' | sort")

  /** Does it so often while the attacker acts. */
  async function raced(act: string, tries = TRIES): Promise<void> {
    const attack = 'systemd-run --quiet -p User=kyc-tokend -p Group=kyc-token'
    await sh(`${attack} --unit=race-files perl /usr/swap-links /srv/of-root/victim ${FILES.join(' ')}
      ${attack} --unit=race-folders perl /usr/swap-links /srv/of-root ${FOLDERS.join(' ')}
      ${attack} --unit=race-links sh -c '${LINKER}'`)
    try {
      await sh(`for try in $(seq ${tries}); do ${act}; done`, { timeoutMs: 600_000 })
    } finally {
      await sh("systemctl stop 'race-*'; systemctl reset-failed")
    }
  }

  it('is on a machine with two accounts', async () => {
    await sh('cat >/usr/swap-links', { input: SWAPPER })
    await sh(`mkdir -m 755 /srv/of-root; echo text >/run/of-root; chmod 666 /run/of-root
      umask 077; echo secret >/srv/of-root/victim`)
    await installation.startStandIn()
    await installation.configure(config)
    await installation.configure(config, '/etc/kyc-tokend/accounts/eu.json')
    await sh(START)
    expect(await ofRoot()).toContain('/srv/of-root/victim root:root 600 7\n')
  })

  // Else the test would see nothing.
  it('gives a file of root to the clients where the directory is its own', async () => {
    const before = await ofRoot()
    await sh(`${STOP}; chown kyc-tokend /run/kyc-tokend; rm -f /run/kyc-tokend/token`)
    const isWon = '[ "$(stat -c %G /srv/of-root/victim)" = root ] || break'
    await raced(`systemctl reset-failed; systemctl restart kyc-tokend.socket || true; ${isWon}`, 200)
    expect(await ofRoot()).not.toBe(before)
    await sh(
      `rm -rf /run/kyc-tokend; chown -R root:root /srv/of-root; chmod 600 /srv/of-root/victim; ${START}`,
    )
    expect(await ofRoot()).toBe(before)
  })

  it.each(Object.entries(ACTS))(
    `wins nothing at %s (${TRIES} tries)`,
    { timeout: 60_000 + 20_000 * TRIES },
    async (_, act) => {
      const before = await ofRoot()
      await raced(act)
      expect(await ofRoot()).toBe(before)
      // Of the daemon's user alone nothing else is left on the machine.
      const elsewhere =
        "find /etc /run /srv /tmp /usr /var -xdev -user kyc-tokend -not -path '/var/lib/kyc-tokend*' -not -path '/run/kyc-tokend*'"
      expect(await sh(elsewhere)).toBe('')
      await sh(`${STOP}; rm -rf /run/kyc-tokend /var/lib/kyc-tokend; ${START}`)
      expect(await sh('kyc-tokend token --wait 10s; kyc-tokend token --wait 10s --account eu')).toMatch(
        /ey[^]*ey/,
      )
    },
  )
})
