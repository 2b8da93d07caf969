// The table about the host, with facts that are written down: each fault has its line, and a healthy host has none.
import { expect, test } from 'vitest'
import { hostRows } from '../../src/check/host-rows.ts'
import type { HostFacts, Unit } from '../../src/check/host.ts'
import { createRemedies } from '../../src/host/remedy.ts'
import type { StatusResult } from '../../src/protocol.ts'

const UP = { LoadState: 'loaded', ActiveState: 'active', Result: 'success', UnitFileState: 'enabled' }
const unit = (name: string, more: object = {}): Unit => ({ name, properties: { ...UP, ...more } })
const DOWN = { ActiveState: 'inactive' }
const service = (more: object = {}): Unit => unit('kyc-tokend.service', more)
const ipcUnit = (more: object = {}): Unit => unit('kyc-tokend.socket', { SocketGroup: 'kyc-token', ...more })
const alertUnit = (more: object = {}): Unit => unit('kyc-tokend-alert.path', more)
const ipc = { path: '/run/kyc-tokend/ipc.sock', isOpenedWide: false, unanswered: null }
const remedies = createRemedies({ account: undefined, isUnit: true })

const status = (more: object = {}, daemon: object = {}) => {
  const configuration = { state: 'current', problem: null }
  const whole = { state: 'ready', files: [], failure: null, alert: null, ...more }
  return { ...whole, daemon: { stateProblem: null, configuration, ...daemon } } as unknown as StatusResult
}

const healthy: HostFacts = {
  remedies,
  service: service(),
  others: [ipcUnit(), alertUnit()],
  units: [],
  words: null,
  complaints: [],
  missing: [],
  mounts: [],
  group: 'kyc-token',
  sockets: [ipc],
  status: status(),
  nowMs: Date.UTC(2030, 0, 1),
  isClockSynchronised: true,
  disks: [{ mount: '/', available: 1e12 }],
  memory: 1e12,
}

function found(more: Partial<HostFacts>) {
  const facts = { ...healthy, ...more }
  return Object.entries(hostRows).flatMap(([subject, findings]) =>
    [...findings(facts)].map((finding) => ({ subject, ...finding })),
  )
}
const { rebind, restart } = remedies.commands
const inOneLine = ({ level, subject, sentence }: ReturnType<typeof found>[number]): string =>
  `${level} ${subject} ${sentence.replaceAll('`', '').replace(rebind!, 'REBIND').replace(restart!, 'RESTART')}`

test('a healthy host has no fault, and says that its sockets answer, the time, and the version of Node', () => {
  expect(found({}).map(({ level, sentence }) => `${level} ${sentence}`)).toEqual([
    'ok /run/kyc-tokend/ipc.sock answers',
    `ok the clock says 2030-01-01T00:00:00.000Z, and Node is ${process.version}`,
  ])
})

const daemon = (more: object) => ({ status: status({}, more) })
const onDisk = (more: object) => daemon({ configuration: { state: 'changed', ...more } })
const unanswered = (why: string) => ({ sockets: [{ ...ipc, unanswered: why }] })

test.each<[Partial<HostFacts>, RegExp]>([
  [
    { units: [ipcUnit({ LoadState: 'masked' })] },
    /^fault unit .*masked: sudo systemctl unmask \S+ && REBIND$/,
  ],
  [
    { units: [service({ NeedDaemonReload: 'yes' })] },
    /^warning .*: sudo systemctl daemon-reload && RESTART$/,
  ],
  [{ complaints: ['z.conf:2: Unknown key'] }, /^warning unit systemd says: z\.conf:2: Unknown key$/],
  [{ words: 'Active: failed' }, /^fault unit .* failed: sudo journalctl -u kyc-tokend -n 20 && REBIND$/],
  [{ missing: ['kyc-token'] }, /^fault users .* kyc-token; .*sysusers kyc-tokend.conf && REBIND$/],
  [{ missing: ['banking'] }, /^fault users .* banking.*correct the drop-in that names it$/],
  [{ mounts: ['/run/kyc-tokend'] }, /^fault directories .*: sudo umount \/run\/kyc-tokend && REBIND$/],
  [{ others: [ipcUnit(DOWN)] }, /^fault unit kyc-tokend\.socket is inactive \(success\): REBIND$/],
  [{ others: [alertUnit(DOWN)] }, /^fault unit kyc-tokend-alert\.path is inactive .*: REBIND$/],
  [
    { others: [ipcUnit({ SocketGroup: 'root' })] },
    /^fault sockets .*=root.* SocketGroup=kyc-token .*: sudo systemctl edit kyc-tokend.socket && REBIND$/,
  ],
  [daemon({ pathProblems: ['it is open'] }), /^fault sockets it is open$/],
  [unanswered('EACCES'), /^fault sockets a member of kyc-token .*EACCES\): REBIND$/],
  [unanswered('timeout'), /^fault .*\(timeout\): RESTART$/],
  [unanswered('closed'), /^fault sockets no answer at .*too many connections/],
  [{ isClockSynchronised: false }, /^warning host .* 2030-.*: sudo timedatectl set-ntp true$/],
  [{ nowMs: 0 }, /^warning host the clock says 1970-/],
  [{ disks: [{ mount: '/run', available: 9 }] }, /^fault host .* \/run is full.*: df -h \/run$/],
  [{ memory: 2e7 }, /^warning host only 19 MiB of memory are free/],
  [{ status: status({ files: [{ path: '/a/t', ok: false, error: 'why' }] }) }, /^fault daemon why$/],
  [daemon({ stateProblem: 'its disk is full' }), /^fault daemon the state .*: its disk is full$/],
  [
    onDisk({ problem: 'it was refused', pair: 'refused' }),
    /^fault configuration it was refused: sudo kyc-tokend refresh$/,
  ],
  [onDisk({ problem: 'no token yet', pair: 'tried' }), /^warning .* no token yet: sudo kyc-tokend refresh$/],
  [onDisk({ problem: null }), /^warning .* former .*: sudo systemctl reload kyc-tokend$/],
  [onDisk({ problem: 'http' }), /^warning .* former .*: http: RESTART$/],
  [
    { status: status({ state: 'expired', failure: { reason: 'of-2031' } }) },
    /^warning daemon it is expired: of-2031$/,
  ],
])('of %j it says %s', (facts, expected) => {
  const findings = found(facts).filter(({ level }) => level !== 'ok')
  expect(findings.map(inOneLine)).toEqual([expect.stringMatching(expected)])
  // A remedy is one sentence and at most three commands.
  expect(findings[0]?.sentence.split(' && ').length).toBeLessThanOrEqual(3)
})
