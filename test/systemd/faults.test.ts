// An operator's hour: faults of the host. Only what `check` and `status` print is pasted, and at the end a member asks.
// Played is each fault for which the words of `check` are known, then others by ones and twos.
// `KYC_TOKEND_FAULTS=100 KYC_TOKEND_FAULT_SEED=7` draws from all instead; names, by commas and `+`, play those.
import { expect, it } from 'vitest'
import { config, CONFIG, describeInstallation } from '../support/installation.ts'
import { createRandom } from '../support/random.ts'
import { expectUntil } from '../support/until.ts'
import { hostFaults, START_STAND_IN, type Person } from './host-faults.ts'

/** Commands at which a person types. */
const BY_HAND = /systemctl edit|kyc-tokend setup|sudo -u|sudoedit/
/** A remedy that would open a directory of the system. */
const OF_THE_SYSTEM = /ch(own|mod|grp) \S+ \/(run|srv|home|root|etc)`/
const WANTED = process.env['KYC_TOKEND_FAULTS']
const DRAWS = 12
const SEED = Number(process.env['KYC_TOKEND_FAULT_SEED'] ?? 20_261_127)
/** What check says where a configuration that is good is not in use. */
const UNREAD = /runs with a former configuration/
const MAX_ROUNDS = 5
const NAMES = Object.keys(hostFaults)
/** faults.test.ts and faults-2.test.ts: each has a machine, and every other fault. */
// oxlint-disable-next-line vitest/no-standalone-expect -- it only says which file this is
const shard = expect.getState().testPath?.endsWith('-2.test.ts') === true ? 1 : 0

/** So many draws of one or two. Of two that a person mends by one act the second would hide the first. */
function drawn(count: number, names: readonly string[]): string[][] {
  const random = createRandom(SEED)
  const one = (): string => names[Math.floor(random() * names.length)]!
  const beside = (first: string): string => {
    const act = hostFaults[first]!.person?.does
    const second = one()
    return act !== undefined && act === hostFaults[second]!.person?.does ? beside(first) : second
  }
  return Array.from({ length: count }, (_, index) => {
    const first = one()
    return index % 3 === 2 ? [first, beside(first)] : [first]
  })
}

function played(): string[][] {
  if (WANTED !== undefined)
    return /^\d+$/.test(WANTED)
      ? drawn(Number(WANTED), NAMES)
      : WANTED.split(',').map((names) => names.split('+'))
  const known = NAMES.filter((name) => hostFaults[name]!.says !== undefined)
  const others = NAMES.filter((name) => !known.includes(name))
  return [...known.map((name) => [name]), ...drawn(DRAWS, others)]
}

/** Everything as it was: what is mounted over, drop-ins, users, files, units. */
const RESET = `
set +e
for directory in /run/kyc-tokend /var/lib/kyc-tokend; do while mountpoint -q $directory; do umount -l $directory; done; done
pid=$(systemctl show -p MainPID --value kyc-tokend); [ "$pid" = 0 ] || kill -CONT $pid
chmod 0755 /run
rm -rf /etc/systemd/system/kyc-tokend* /etc/kyc-tokend /var/lib/kyc-tokend/* /srv/out /run/systemd/system/kyc-tokend*
systemctl unmask -q kyc-tokend.service kyc-tokend.socket kyc-tokend-http.socket
systemctl daemon-reload
systemctl stop 'kyc-tokend*'
systemctl reset-failed
systemd-sysusers kyc-tokend.conf
rm -rf /run/kyc-tokend
systemd-tmpfiles --create kyc-tokend.conf
usermod -G kyc-token member
mkdir -p /etc/kyc-tokend; cp -a /root/good/. /etc/kyc-tokend
chown -R root:kyc-tokend /etc/kyc-tokend
chown -R kyc-tokend:kyc-tokend /var/lib/kyc-tokend
systemctl enable -q kyc-tokend.service kyc-tokend.socket kyc-tokend-http.socket kyc-tokend-alert.path
${START_STAND_IN}
systemctl start kyc-tokend.socket kyc-tokend-http.socket kyc-tokend-alert.path kyc-tokend
true`

/** As a member: both sockets and the file. */
const ASK = `timeout 12 kyc-tokend token --wait 2s >/dev/null &&
timeout 12 curl -fsS --max-time 10 --unix-socket /run/kyc-tokend/http.sock http://localhost/v1/token >/dev/null &&
test -s /run/kyc-tokend/token`
/** A daemon that starts again is there in 3 s, and a token file that was removed within 15 s. */
const SETTLE = `timeout 12 kyc-tokend token --wait 5s >/dev/null &&
timeout 20 sh -c 'until test -s /run/kyc-tokend/token; do sleep 0.2; done'`

const show = (line: string): void => void process.stderr.write(`${line}\n`)

describeInstallation('An operator who pastes what the tools print', {}, (installation) => {
  const { attempt, configure, sh, startStandIn } = installation

  const isServed = async (): Promise<boolean> => (await attempt(ASK, 'member')).status === 0
  const settings = { ...config, credentials: { apiKey: 'sandbox-key', apiSecret: { file: 'api-secret' } } }

  it('is told of a good installation only that members are let in', async () => {
    await startStandIn()
    await sh('umask 027; useradd -M -G kyc-token member; echo sandbox-secret >/etc/kyc-tokend/api-secret')
    await configure(settings)
    await sh(`chgrp kyc-tokend /etc/kyc-tokend/api-secret ${CONFIG}; cp -a /etc/kyc-tokend /root/good`)
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

  /** Pastes each command that was printed, once; gives those that were pasted. */
  async function paste(said: string): Promise<string[]> {
    const lines = said.split('\n').filter((line) => !/^(?:ok|warning) +host/.test(line))
    const quoted = lines.flatMap((line) => [...line.matchAll(/`([^`]*)`/g)].map(([, text = '']) => text))
    const commands = [...new Set(quoted)].filter(
      (text) => /^(?:sudo|printf|kyc-tokend) /.test(text) && !BY_HAND.test(text),
    )
    for (const command of commands) {
      const { status } = await attempt(`set +e\n${command.replaceAll('sudo ', '')}`)
      show(`    ${status === 0 ? ' ' : status} ${command}`)
    }
    return commands
  }

  /** One round: what the tools say; then persons do what is theirs and is named, and the commands are pasted. */
  async function playRound(title: string, persons: Set<Person>) {
    // First: a member who asks may start the daemon.
    const check = await attempt('timeout 100 kyc-tokend check')
    const wasServed = await isServed()
    show(`${title}: ${wasServed ? 'served' : 'not served'}, check ${check.status}`)
    const isWell = check.status === 0 && !UNREAD.test(check.stdout)
    if (isWell && wasServed && persons.size === 0)
      return { check, isGreen: true, wasServed, isLockedOut: false }
    const status = await attempt('timeout 30 kyc-tokend status')
    const said = `${check.stdout}${check.stderr}${status.stdout}${status.stderr}`
    for (const [line] of check.stdout.matchAll(/^(?:FAULT|warning) +(?!host).*$/gm)) show(`  ${line}`)
    const asked = [...persons].filter(({ named }) => named.test(said))
    for (const person of asked) {
      show(`    by a person: ${person.does}`)
      await sh(person.does)
      persons.delete(person)
    }
    // A person closed it, or is about to open it.
    const isGreen = isWell && asked.length === 0
    const pasted = isGreen && wasServed ? [] : await paste(said)
    if (pasted.length > 0) await attempt(SETTLE, 'member')
    // Who was not served is asked by the next round.
    return { check, isGreen, wasServed, isLockedOut: wasServed && !(await isServed()) }
  }

  const own = played().filter((_names, index) => index % 2 === shard)
  /** Nothing is left of the fault before, or only what its remedies made. */
  let isGood = true

  it.each(own.map((names) => [names.join(' + '), names] as const))('%s', async (title, names) => {
    if (!isGood) await sh(RESET)
    isGood = false
    await expectUntil('a member is served', isServed)
    for (const name of names) await attempt(`set +e\n${hostFaults[name]!.breaks}\ntrue`)
    const persons = new Set(names.flatMap((name) => hostFaults[name]!.person ?? []))
    const rounds: Awaited<ReturnType<typeof playRound>>[] = []
    do rounds.push(await playRound(`${title}, round ${rounds.length + 1}`, persons))
    while (
      rounds.length < MAX_ROUNDS &&
      !(persons.size === 0 && rounds.at(-1)!.isGreen && rounds.at(-1)!.wasServed)
    )
    const [{ check }] = rounds as [(typeof rounds)[number]]
    const says = names.length === 1 ? hostFaults[names[0]!]!.says : undefined
    if (says !== undefined) {
      expect(check.stdout).toMatch(says)
      expect(check.status).toBe(says.source.startsWith('^FAULT') ? 78 : 0)
    }
    expect(check.stdout).not.toMatch(OF_THE_SYSTEM)
    expect(
      [...persons].map(({ named }) => named),
      'what a person has to do is named',
    ).toEqual([])
    expect(
      rounds.filter(({ isGreen, wasServed }) => isGreen && !wasServed),
      'check is green while members are locked out',
    ).toEqual([])
    expect(
      rounds.filter(({ isLockedOut }) => isLockedOut),
      'pasting locked members out',
    ).toEqual([])
    expect(rounds.at(-1), 'mended').toMatchObject({ isGreen: true, wasServed: true })
    isGood = says !== undefined
  })

  it('mends a file system that is read-only for everybody, and one that is so for the unit alone', async () => {
    const folder = '/srv/app/kyc'
    await sh(RESET)
    await sh(`mkdir -p /srv/app; mount -t tmpfs tmpfs /srv/app; install -d -o kyc-tokend -m 2750 ${folder}`)
    await configure({ ...settings, tokenFiles: [...config.tokenFiles, { path: `${folder}/token` }] })
    const isWritten = async (): Promise<boolean> => (await attempt(`test -s ${folder}/token`)).status === 0
    const mend = async (says: RegExp): Promise<void> => {
      const { stdout, status } = await attempt('kyc-tokend check')
      expect(status).toBe(78)
      await sh((says.exec(stdout)?.[1] ?? stdout).replaceAll('sudo ', ''))
    }
    await sh('systemctl restart kyc-tokend')
    await mend(/kyc is read-only for this unit alone: `(.*)`/)
    await expectUntil('the file', isWritten)
    await sh('mount -o remount,ro /srv/app')
    await mend(/kyc is read-only for everybody: `(.*)`/)
    await sh(`rm ${folder}/token`)
    await expectUntil('the file', isWritten)
    expect(await sh('kyc-tokend check')).toMatch(/^No fault/m)
  })
})
