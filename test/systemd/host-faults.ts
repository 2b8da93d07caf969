// Faults that an operator meets on a host with the package: each is a script by root, and what the tools must make
// of it. Played in faults.test.ts.

const DROP_INS = '/etc/systemd/system/kyc-tokend.service.d'
const CONFIG = '/etc/kyc-tokend/kyc-tokend.config.json'
const SECRET = '/etc/kyc-tokend/api-secret'
const RESTART = 'timeout 20 systemctl restart kyc-tokend'
const dropIn = (...lines: string[]): string =>
  `mkdir -p ${DROP_INS}; printf '%s\\n' '[Service]' '${lines.join("' '")}' >${DROP_INS}/zz-ops.conf; ` +
  `systemctl daemon-reload; ${RESTART}`
const socketDropIn = (line: string, file = 'z.conf'): string =>
  `mkdir -p /etc/systemd/system/kyc-tokend.socket.d; printf '[Socket]\\n${line}\\n' >/etc/systemd/system/kyc-tokend.socket.d/${file}; ` +
  'systemctl daemon-reload; systemctl stop kyc-tokend kyc-tokend.socket; systemctl start kyc-tokend.socket kyc-tokend'
/** Changes the configuration by a function of JavaScript. */
const edit = (body: string): string =>
  `/usr/lib/kyc-tokend/node -e "const fs=require('fs'),f='${CONFIG}',c=JSON.parse(fs.readFileSync(f));${body};fs.writeFileSync(f,JSON.stringify(c))"`

export interface HostFault {
  readonly breaks: string
  /** Is in what `check` says. */
  readonly says?: RegExp
  /**
   * What only a person can do: the tools name it in words that match, and then it is done. Undefined: what they print
   * mends it, or nothing is wrong for members.
   */
  readonly person?: Person
}

/** The words that name what a person has to do, and the script by which it is done. */
export interface Person {
  readonly named: RegExp
  readonly does: string
}

const GOOD = '/root/good'
const putBack = (file: string): string => `cp -a ${GOOD}/${file} /etc/kyc-tokend/${file}`
const PUT_BACK_CONFIG = putBack('kyc-tokend.config.json')
const TAKE_OUT = `rm ${DROP_INS}/zz-ops.conf`
const TAKE_OUT_OF_SOCKET = 'rm /etc/systemd/system/kyc-tokend.socket.d/z.conf'
/** The service that the daemon asks. */
export const START_STAND_IN =
  'systemctl start stand-in 2>/dev/null || systemd-run -q --unit=stand-in kyc-tokend sandbox --port 8099 --token-lifetime 1h'
/** The group is made again before. */
const ADD_MEMBER = 'systemd-sysusers kyc-tokend.conf && usermod -aG kyc-token member'

export const hostFaults: Readonly<Record<string, HostFault>> = {
  rundir_rm: { breaks: 'rm -rf /run/kyc-tokend' },
  rundir_0700: {
    breaks: 'chmod 0700 /run/kyc-tokend',
    says: /^FAULT +paths +a member of kyc-token cannot ask \S+ipc\.sock \(EACCES at \/run\/kyc-tokend\)/m,
  },
  rundir_0755: { breaks: 'chmod 0755 /run/kyc-tokend' },
  rundir_owner: {
    breaks: 'chown kyc-tokend:kyc-tokend /run/kyc-tokend; chmod 0751 /run/kyc-tokend',
    says: /^FAULT +paths +the runtime directory \/run\/kyc-tokend belongs to the user kyc-tokend and not to root/m,
  },
  rundir_0771: {
    breaks: 'chmod -s,-t /run/kyc-tokend; chmod 0771 /run/kyc-tokend',
    says: /^FAULT +paths +the runtime directory \/run\/kyc-tokend has the mode 0771 and needs 3771/m,
  },
  rundir_acl_masked: {
    breaks: `chmod 3751 /run/kyc-tokend; ${RESTART}`,
    says: /^FAULT +paths +the runtime directory \/run\/kyc-tokend has no access list by which/m,
  },
  rundir_no_acl: { breaks: 'setfacl -b /run/kyc-tokend' },
  rundir_tmpfs_over: { breaks: 'mount -t tmpfs -o mode=0755 over /run/kyc-tokend' },
  ipc_is_file: { breaks: 'rm -f /run/kyc-tokend/ipc.sock; touch /run/kyc-tokend/ipc.sock' },
  ipc_is_directory: { breaks: 'rm -f /run/kyc-tokend/ipc.sock; mkdir /run/kyc-tokend/ipc.sock' },
  ipc_0600: { breaks: 'chmod 0600 /run/kyc-tokend/ipc.sock' },
  socks_chgrp: {
    breaks: 'chgrp root /run/kyc-tokend/*.sock',
    says: /^FAULT +paths +the socket \S+ipc\.sock belongs to the group root and not to kyc-token/m,
  },
  http_rm: {
    breaks: 'rm -f /run/kyc-tokend/http.sock',
    says: /^FAULT +paths +the socket \S+http\.sock is not there/m,
  },
  ipcsocket_stopped: { breaks: 'systemctl stop kyc-tokend.socket; sleep 1' },
  httpsocket_stopped: { breaks: 'systemctl stop kyc-tokend-http.socket' },
  httpsocket_masked: {
    breaks: `systemctl stop kyc-tokend-http.socket; systemctl mask kyc-tokend-http.socket; ${RESTART}`,
  },
  httpsocket_masked_rundir_rm: {
    breaks: 'systemctl mask --quiet --now kyc-tokend-http.socket; rm -r /run/kyc-tokend',
    says: /^FAULT +paths +the runtime directory \/run\/kyc-tokend is not there/m,
  },
  ipcsocket_masked: {
    breaks: 'systemctl mask --now kyc-tokend.socket; systemctl stop kyc-tokend',
    says: /^FAULT +sockets +the socket \S+ipc\.sock is closed, because kyc-tokend\.socket is masked/m,
  },
  service_masked: {
    breaks: 'systemctl mask --now kyc-tokend.service',
    says: /^FAULT +unit +kyc-tokend\.service is masked/m,
  },
  service_stopped: { breaks: 'systemctl stop kyc-tokend.service' },
  all_stopped: { breaks: "systemctl stop 'kyc-tokend*'" },
  config_typo: {
    breaks: `sed -i 's/"baseUrl"/"baseURL"/' ${CONFIG}; systemctl reload kyc-tokend`,
    person: { named: /baseURL/, does: PUT_BACK_CONFIG },
  },
  config_syntax: {
    breaks: `sed -i '1s/{/{,/' ${CONFIG}; systemctl reload kyc-tokend`,
    person: { named: /JSON/, does: PUT_BACK_CONFIG },
  },
  config_0666: { breaks: `chmod 0666 ${CONFIG}` },
  config_0600: { breaks: `chown root:root ${CONFIG}; chmod 0600 ${CONFIG}; ${RESTART}` },
  config_gone: {
    breaks: `mv ${CONFIG} /root/moved.json; ${RESTART}`,
    person: { named: /setup|no configuration/, does: PUT_BACK_CONFIG },
  },
  secret_0644: { breaks: `chmod 0644 /etc/kyc-tokend/api-secret; ${RESTART}` },
  secret_gone: {
    breaks: 'rm /etc/kyc-tokend/api-secret',
    person: { named: /api-secret/, does: putBack('api-secret') },
  },
  secret_empty: {
    breaks: `: >/etc/kyc-tokend/api-secret; ${RESTART}`,
    person: { named: /api-secret/, does: putBack('api-secret') },
  },
  secret_wrong: {
    breaks: "printf 'S-bad-0001-zzzzzz' >/etc/kyc-tokend/api-secret; sleep 3; kyc-tokend refresh",
    person: { named: /refused/, does: putBack('api-secret') },
  },
  secret_in_root: {
    breaks: `mv ${SECRET} /root/api-secret; ln -s /root/api-secret ${SECRET}; ${RESTART}`,
    says: /^FAULT +configuration +kyc-tokend\.service does not see \S+secret, a link to \/root\/api-secret/m,
  },
  secret_in_home: {
    breaks: `install -D -m 0644 ${SECRET} /home/app/api-secret; ln -sf /home/app/api-secret ${SECRET}; ${RESTART}`,
    says: /^FAULT +configuration +kyc-tokend\.service does not see \S+secret, a link to \/home\/app\/api-secret/m,
  },
  secret_hidden: {
    breaks: dropIn(`InaccessiblePaths=${SECRET}`),
    says: /^FAULT +configuration +kyc-tokend\.service does not see \S+secret \(.*InaccessiblePaths=/m,
    person: { named: /InaccessiblePaths=/, does: TAKE_OUT },
  },
  etc_0700: {
    breaks: `chmod 0700 /etc/kyc-tokend; ${RESTART}`,
    says: /^FAULT +configuration .*, who may not enter \/etc\/kyc-tokend:/m,
  },
  etc_0777: { breaks: `chmod 0777 /etc/kyc-tokend; ${RESTART}` },
  state_gone: { breaks: 'rm -rf /var/lib/kyc-tokend' },
  state_root: { breaks: 'chown -R root:root /var/lib/kyc-tokend' },
  state_key_dir: { breaks: 'rm -f /var/lib/kyc-tokend/key; mkdir /var/lib/kyc-tokend/key' },
  state_ro: {
    breaks: `mount --bind /var/lib/kyc-tokend /var/lib/kyc-tokend && mount -o remount,bind,ro /var/lib/kyc-tokend; ${RESTART}`,
  },
  run_full: {
    breaks: `mount -t tmpfs -o size=16k,mode=2751 full /run/kyc-tokend; head -c 16k /dev/zero >/run/kyc-tokend/fill; systemctl restart kyc-tokend.socket kyc-tokend-http.socket; ${RESTART}`,
  },
  token_dir: { breaks: 'rm -f /run/kyc-tokend/token; mkdir /run/kyc-tokend/token' },
  token_link: { breaks: 'rm -f /run/kyc-tokend/token; ln -s /etc/passwd /run/kyc-tokend/token' },
  token_fifo: { breaks: 'rm -f /run/kyc-tokend/token; mkfifo /run/kyc-tokend/token' },
  token_of_root: {
    breaks: 'rm -f /run/kyc-tokend/token; echo x >/run/kyc-tokend/token; chmod 600 /run/kyc-tokend/token',
    says: /^FAULT +files .*token cannot be replaced: it belongs to the user root, and its directory is sticky/m,
  },
  lock_of_root: {
    breaks: `systemctl stop kyc-tokend; rm -f /run/kyc-tokend/instance.lock; touch /run/kyc-tokend/instance.lock; ${RESTART}`,
    says: /^FAULT +paths +the file \S+instance\.lock belongs to the user root and not to kyc-tokend/m,
  },
  lock_of_nobody: {
    breaks: 'systemctl stop kyc-tokend.service; chown 12345 /run/kyc-tokend/instance.lock',
    says: /^FAULT +paths +the file \S+instance\.lock belongs to the user 12345, which is gone,/m,
  },
  state_of_nobody: {
    breaks: 'systemctl stop kyc-tokend.service; chown 12345:12345 /var/lib/kyc-tokend/*',
    says: /^FAULT +paths +the file \S+memory\.json belongs to the user 12345/m,
  },
  tokenfile_elsewhere: {
    breaks: `mkdir -p /srv/out; chmod 755 /srv/out; ${edit("c.tokenFiles.push({path:'/srv/out/token',mode:'0640'})")}; systemctl reload kyc-tokend`,
  },
  rwpaths_gone: {
    breaks: dropIn('ReadWritePaths=/srv/nope'),
    says: /^FAULT +unit +a drop-in .* has ReadWritePaths=\/srv\/nope, which does not exist/m,
  },
  private_network: {
    breaks: dropIn('PrivateNetwork=yes'),
    person: { named: /zz-ops\.conf has PrivateNetwork=yes/, does: TAKE_OUT },
  },
  nofile_20: {
    breaks: dropIn('LimitNOFILE=20'),
    person: { named: /zz-ops\.conf has LimitNOFILE=20/, does: TAKE_OUT },
  },
  dropin_unread: {
    // systemd watches for files in directories that it knows.
    breaks: `mkdir -p ${DROP_INS}; systemctl daemon-reload; printf '[Service]\\nEnvironment=A=b\\n' >${DROP_INS}/zz-ops.conf`,
    says: /^warning +unit +kyc-tokend\.service changed on disk, and systemd has not read that yet/m,
  },
  user_root: {
    breaks: dropIn('User=root', 'Group=root'),
    person: { named: /zz-ops\.conf has User=root/, does: TAKE_OUT },
  },
  runtime_directory: {
    breaks: dropIn('RuntimeDirectory=kyc-tokend'),
    person: { named: /zz-ops\.conf has RuntimeDirectory=/, does: TAKE_OUT },
  },
  exec_gone: {
    breaks: dropIn('ExecStart=', 'ExecStart=/usr/lib/kyc-tokend/none run'),
    person: { named: /203\/EXEC|zz-ops\.conf/, does: TAKE_OUT },
    says: /^FAULT +unit +kyc-tokend\.service cannot start \(203\/EXEC/m,
  },
  supplementary_group_gone: {
    breaks: dropIn('SupplementaryGroups=not-there'),
    says: /^FAULT +unit +kyc-tokend\.service cannot start \(216\/GROUP/m,
    person: { named: /216\/GROUP/, does: TAKE_OUT },
  },
  protect_etc: {
    breaks: dropIn('InaccessiblePaths=/etc/kyc-tokend'),
    person: { named: /zz-ops\.conf has InaccessiblePaths=/, does: TAKE_OUT },
  },
  ro_run: {
    breaks: dropIn('ReadOnlyPaths=/run/kyc-tokend'),
    person: { named: /zz-ops\.conf has ReadOnlyPaths=/, does: TAKE_OUT },
  },
  credential_gone: {
    breaks: dropIn('LoadCredential=gone:/srv/gone'),
    person: { named: /243\/CREDENTIALS/, does: TAKE_OUT },
    says: /^FAULT +unit +kyc-tokend\.service cannot start \(243\/CREDENTIALS: what LoadCredential= .* names/m,
  },
  socket_group_root: {
    breaks: socketDropIn('SocketGroup=root'),
    person: { named: /z\.conf has SocketGroup=root/, does: TAKE_OUT_OF_SOCKET },
  },
  // The administrator's choice, which is right.
  socket_group_payments: {
    breaks: `getent group payments >/dev/null || groupadd payments; usermod -aG payments member; ${socketDropIn('SocketGroup=payments', 'a.conf')}`,
  },
  socket_mode_0600: {
    breaks: socketDropIn('SocketMode=0600'),
    person: { named: /z\.conf has SocketMode=0600/, does: TAKE_OUT_OF_SOCKET },
  },
  socket_group_gone: {
    breaks: socketDropIn('SocketGroup=not-there'),
    person: { named: /not-there/, does: TAKE_OUT_OF_SOCKET },
  },
  // With the group its members are gone.
  group_removed: {
    breaks: 'groupdel kyc-token; timeout 20 systemctl restart kyc-tokend.socket kyc-tokend',
    person: { named: /usermod -aG kyc-token USER/, does: ADD_MEMBER },
  },
  user_gone: {
    breaks: `systemctl stop kyc-tokend.service; userdel kyc-tokend; ${RESTART}`,
    says: /^FAULT +unit +kyc-tokend\.service cannot start \(217\/USER/m,
  },
  user_removed: {
    breaks:
      "systemctl stop 'kyc-tokend*'; userdel kyc-tokend; groupdel kyc-token; timeout 20 systemctl start kyc-tokend",
    person: { named: /usermod -aG kyc-token USER/, does: ADD_MEMBER },
  },
  sigstop: { breaks: 'kill -STOP $(systemctl show -p MainPID --value kyc-tokend)' },
  killed: { breaks: 'kill -KILL $(systemctl show -p MainPID --value kyc-tokend); sleep 4' },
  alertpath_stopped: { breaks: 'systemctl stop kyc-tokend-alert.path' },
  yaml_beside: {
    breaks: `cp ${CONFIG} /etc/kyc-tokend/kyc-tokend.config.yaml`,
    person: { named: /yaml/, does: 'rm /etc/kyc-tokend/kyc-tokend.config.yaml' },
  },
  allow_nobody: {
    breaks: `${edit("c.ipc={allow:{users:['daemon']}};c.http={allow:{users:['daemon']}}")}; systemctl reload kyc-tokend`,
    person: { named: /allow/, does: PUT_BACK_CONFIG },
  },
  run_0750: {
    breaks: 'chmod 0750 /run',
    person: { named: /EACCES at \/run\)|\/run is the system's/, does: 'chmod 0755 /run' },
  },
  // A good token outlives a restart without the service.
  service_down: { breaks: 'systemctl stop stand-in; systemctl restart kyc-tokend' },
}
