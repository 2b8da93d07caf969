// The remedies that `check` prints: for each row something is broken, its commands are pasted, and a client is served again.
import { expect, it } from 'vitest'
import { config, describeInstallation } from '../support/installation.ts'
import { expectUntil } from '../support/until.ts'

const DROP_IN = '/etc/systemd/system/kyc-tokend.service.d/broken.conf'
const SECRET = '/etc/kyc-tokend/secret'
const dropIn = (...lines: string[]): string =>
  `mkdir -p $(dirname ${DROP_IN}); printf '[Service]\\n${lines.join('\\n')}\\n' >${DROP_IN}; systemctl daemon-reload`
const RESTART = 'systemctl restart kyc-tokend || true'
const STOP = 'systemctl stop kyc-tokend.service 2>/dev/null'

interface Row {
  /** A script by root. */
  readonly breaks: string
  /** Is in the line of the finding. */
  readonly says: RegExp
  /** Exit status of `check`; 78 where it is not given. */
  readonly status?: 0
  /** What a person does at the editor that a command opens. */
  readonly edit?: string
}

const rows: Readonly<Record<string, Row>> = {
  'a closed runtime directory': {
    breaks: 'chmod 0700 /run/kyc-tokend',
    says: /^FAULT +paths +a member of kyc-token cannot ask \S+ipc\.sock \(EACCES at \/run\/kyc-tokend\)/m,
  },
  'a runtime directory of another owner': {
    breaks: 'chown kyc-tokend:kyc-tokend /run/kyc-tokend; chmod 0751 /run/kyc-tokend',
    says: /^FAULT +paths +the runtime directory \/run\/kyc-tokend belongs to the user kyc-tokend and not to root/m,
  },
  'a runtime directory that lost setgid and the sticky bit': {
    breaks: 'chmod -s,-t /run/kyc-tokend; chmod 0771 /run/kyc-tokend',
    says: /^FAULT +paths +the runtime directory \/run\/kyc-tokend has the mode 0771 and needs 3771/m,
  },
  'a runtime directory whose access list was masked by chmod': {
    breaks: `chmod 3751 /run/kyc-tokend; ${RESTART}`,
    says: /^FAULT +paths +the runtime directory \/run\/kyc-tokend has no access list by which/m,
  },
  'a token file of root': {
    breaks: 'rm /run/kyc-tokend/token; echo of-root >/run/kyc-tokend/token',
    says: /^FAULT +files .*token cannot be replaced: it belongs to the user root, and its directory is sticky/m,
  },
  'the lock of root': {
    breaks: `${STOP}; rm -f /run/kyc-tokend/instance.lock; touch /run/kyc-tokend/instance.lock; ${RESTART}`,
    says: /^FAULT +paths +the file \S+instance\.lock belongs to the user root and not to kyc-tokend/m,
  },
  'a socket of another group': {
    breaks: 'chgrp root /run/kyc-tokend/ipc.sock',
    says: /^FAULT +paths +the socket \S+ipc\.sock belongs to the group root and not to kyc-token/m,
  },
  'a socket that was removed': {
    breaks: 'rm /run/kyc-tokend/http.sock',
    says: /^FAULT +paths +the socket \S+http\.sock is not there/m,
  },
  'a runtime directory that was removed, beside a masked socket': {
    breaks: 'systemctl mask --quiet --now kyc-tokend-http.socket; rm -r /run/kyc-tokend',
    says: /^FAULT +paths +the runtime directory \/run\/kyc-tokend is not there/m,
  },
  'the lock of a user who is gone': {
    breaks: `${STOP}; chown 12345 /run/kyc-tokend/instance.lock`,
    says: /^FAULT +paths +the file \S+instance\.lock belongs to the user 12345, which is gone,/m,
  },
  'the state of a user who is gone': {
    breaks: `${STOP}; chown 12345:12345 /var/lib/kyc-tokend/*`,
    says: /^FAULT +paths +the file \S+memory\.json belongs to the user 12345/m,
  },
  'a configuration directory that is closed': {
    breaks: `chmod 0700 /etc/kyc-tokend; ${RESTART}`,
    says: /^FAULT +configuration .*, who may not enter \/etc\/kyc-tokend:/m,
  },
  'a secret in /root': {
    breaks: `mv ${SECRET} /root/secret; ln -s /root/secret ${SECRET}; ${RESTART}`,
    says: /^FAULT +configuration +kyc-tokend\.service does not see \S+secret, a link to \/root\/secret/m,
  },
  'a secret that a link leads to in /home': {
    breaks: `install -D -m 0644 ${SECRET} /home/app/secret; ln -sf /home/app/secret ${SECRET}; ${RESTART}`,
    says: /^FAULT +configuration +kyc-tokend\.service does not see \S+secret, a link to \/home\/app\/secret/m,
  },
  'a setting of the unit that hides the secret': {
    breaks: `${dropIn(`InaccessiblePaths=${SECRET}`)}; ${RESTART}`,
    says: /^FAULT +configuration +kyc-tokend\.service does not see \S+secret \(.*InaccessiblePaths=/m,
    edit: `rm ${DROP_IN}`,
  },
  'a masked unit': {
    breaks: 'systemctl mask --quiet --now kyc-tokend.service',
    says: /^FAULT +unit +kyc-tokend\.service is masked/m,
  },
  'a masked socket': {
    breaks: `${STOP}; systemctl mask --quiet --now kyc-tokend.socket`,
    says: /^FAULT +sockets +the socket \S+ipc\.sock is closed, because kyc-tokend\.socket is masked/m,
  },
  'a program that is not there': {
    breaks: `${dropIn('ExecStart=', 'ExecStart=/usr/bin/not-there')}; ${RESTART}`,
    says: /^FAULT +unit +kyc-tokend\.service cannot start \(203\/EXEC/m,
    edit: `rm ${DROP_IN}`,
  },
  'a group that is not there': {
    breaks: `${dropIn('SupplementaryGroups=not-there')}; ${RESTART}`,
    says: /^FAULT +unit +kyc-tokend\.service cannot start \(216\/GROUP/m,
    edit: `rm ${DROP_IN}`,
  },
  'a directory of a drop-in that is gone': {
    breaks: `${dropIn('ReadWritePaths=/srv/gone')}; ${RESTART}`,
    says: /^FAULT +unit +a drop-in .* has ReadWritePaths=\/srv\/gone, which does not exist/m,
    edit: 'true',
  },
  'a credential that is gone': {
    breaks: `${dropIn('LoadCredential=gone:/srv/gone')}; ${RESTART}`,
    says: /^FAULT +unit +kyc-tokend\.service cannot start \(243\/CREDENTIALS: what LoadCredential= .* names/m,
    edit: `rm ${DROP_IN}`,
  },
  'a drop-in that systemd has not read': {
    breaks: `mkdir -p $(dirname ${DROP_IN}); printf '[Service]\\nEnvironment=A=b\\n' >${DROP_IN}`,
    says: /^warning +unit +kyc-tokend\.service changed on disk, and systemd has not read that yet/m,
    status: 0,
  },
  'a user who was removed': {
    breaks: `${STOP}; userdel kyc-tokend; ${RESTART}`,
    says: /^FAULT +unit +kyc-tokend\.service cannot start \(217\/USER/m,
  },
}

describeInstallation('The remedies of check', {}, (installation) => {
  const { configure, attempt, startStandIn, sh } = installation

  it('has nothing to say of a good installation but that members are let in', async () => {
    await startStandIn()
    await sh(
      `umask 027; echo sandbox-secret >${SECRET}; chgrp kyc-tokend ${SECRET}; useradd -M -G kyc-token member`,
    )
    await configure({ ...config, credentials: { apiKey: 'sandbox-key', apiSecret: { file: 'secret' } } })
    await sh('systemctl enable --quiet --now kyc-tokend')
    const stdout = await sh('kyc-tokend check --live')
    for (const does of [
      'ask /run/kyc-tokend/ipc.sock, and is answered',
      'ask /run/kyc-tokend/http.sock, and is answered',
      'read /run/kyc-tokend/token',
    ])
      expect(stdout).toContain(`a member of kyc-token can ${does}\n`)
    expect(stdout).toMatch(/^ok +service +gave a token/m)
    expect(await sh('ls /run/systemd/system /run')).not.toContain('kyc-tokend-check')
  })

  it.each(Object.entries(rows))('mend %s', async (_, { breaks, says, status = 78, edit = 'false' }) => {
    await sh(breaks)
    const broken = await attempt('kyc-tokend check')
    expect(broken.stdout).toMatch(says)
    expect(broken.status).toBe(status)
    expect(broken.stdout).not.toMatch(/ch(own|mod|grp) \S+ \/(run|srv|home|root|etc)`/)
    await sh(
      `printf '#!/bin/sh\\n[ "$1" != edit ] || { ${edit}; exec systemctl daemon-reload; }\\nexec /usr/bin/systemctl "$@"\\n' >/usr/local/sbin/systemctl; chmod +x /usr/local/sbin/systemctl`,
    )
    const remedies = broken.stdout.matchAll(/^(?:FAULT|warning) +(?!host).*: `(.*)`$/gm)
    // Root needs no sudo. What an earlier remedy has mended, a later one may leave.
    for (const remedy of new Set(Array.from(remedies, ([, commands = '']) => commands)))
      await attempt(remedy.replaceAll('sudo ', ''))
    await sh('rm /usr/local/sbin/systemctl')
    expect(await sh('kyc-tokend token --wait 10s', { as: 'member' })).toMatch(/^ey/)
    await expectUntil(
      'the file of a member',
      async () => (await attempt('cat /run/kyc-tokend/token', 'member')).status === 0,
    )
    const mended = await attempt('kyc-tokend check')
    expect(mended.stdout).not.toMatch(/^FAULT/m)
    expect(mended.status).toBe(0)
  })

  it('mend a file system that is read-only for everybody, and one that is so for the unit alone', async () => {
    const folder = '/srv/app/kyc'
    await sh(`mkdir -p /srv/app; mount -t tmpfs tmpfs /srv/app; install -d -o kyc-tokend -m 2750 ${folder}`)
    await configure({
      ...config,
      credentials: { apiKey: 'sandbox-key', apiSecret: { file: 'secret' } },
      tokenFiles: [...config.tokenFiles, { path: `${folder}/token` }],
    })
    const paste = async (says: RegExp): Promise<void> => {
      const { stdout, status } = await attempt('kyc-tokend check')
      expect(status).toBe(78)
      await sh((says.exec(stdout)?.[1] ?? stdout).replaceAll('sudo ', ''))
    }
    await sh(RESTART)
    await paste(/kyc is read-only for this unit alone: `(.*)`/)
    await expectUntil('the file', async () => (await attempt(`test -s ${folder}/token`)).status === 0)
    await sh('mount -o remount,ro /srv/app')
    await paste(/kyc is read-only for everybody: `(.*)`/)
    await sh(`rm ${folder}/token`)
    await expectUntil('the file', async () => (await attempt(`test -s ${folder}/token`)).status === 0)
    expect(await sh('kyc-tokend check')).toMatch(/^No fault/m)
    await sh('rm -r /etc/systemd/system/kyc-tokend.service.d; systemctl daemon-reload')
  })
})
