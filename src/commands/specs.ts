// Every command as data, from which help, completions and manual come. Only the one that is run is loaded.
import type { CommandSpec } from '../terminal/command.ts'
import { clientCommands, exitsOfClient, ofDaemon } from './client-specs.ts'
import { scenarioNames } from '../sandbox/scenarios.ts'

const ofConfig = {
  config: {
    value: 'PATH',
    summary: 'The configuration file',
    default:
      '$KYC_TOKEND_CONFIG, else kyc-tokend.config.json, .yaml or .yml here (not for root) or in ' +
      '/etc/kyc-tokend',
  },
  account: {
    value: 'NAME',
    summary: 'The account, configured in /etc/kyc-tokend/accounts/NAME.json; not with --config',
    default: '$KYC_TOKEND_ACCOUNT, else the configuration of --config',
  },
}

export const commands: readonly CommandSpec[] = [
  {
    name: 'setup',
    examples: [
      'sudo kyc-tokend setup',
      'sudo kyc-tokend setup --from kyc.json',
      'sudo kyc-tokend setup --force --from - <kyc.json',
    ],
    async load() {
      const [{ setupWith }, { checkLive }] = await Promise.all([
        import('../setup/setup.ts'),
        import('../check/check.ts'),
      ])
      return { run: setupWith(checkLive) }
    },
    summary: 'Write configuration and secrets, check them with the service, and start the daemon',
    exits: {
      0: 'there is a token',
      69: 'systemd does not answer, the unit does not start',
      75: 'there is no token, or another setup runs',
      77: exitsOfClient[77],
      78: 'there is a configuration, or the new one is faulty',
    },
    options: {
      'base-url': { value: 'URL', summary: 'Address of the service', default: 'asked for' },
      'api-key-file': { value: 'FILE', summary: 'File with the API key', default: 'asked for' },
      'api-secret-file': { value: 'FILE', summary: 'File with the API secret', default: 'asked for' },
      from: {
        value: 'FILE',
        summary: 'A configuration (JSON) with key and secret; - for stdin',
      },
      kind: {
        value: 'KIND',
        summary: 'How the service wants the login',
        default: 'kyc',
        choices: ['kyc', 'oauth2'],
      },
      'token-url': {
        value: 'URL',
        summary: 'Where an OAuth2 service gives tokens: a path, or a URL',
        default: 'asked for',
      },
      'expires-at': {
        value: 'DATE',
        summary: 'When key and secret end, such as 2027-03-01',
        default: 'asked for',
      },
      force: { summary: 'Replace an existing configuration; its other settings stay' },
      unverified: { summary: 'Put the files in place though the service gave no token' },
      account: { value: 'NAME', summary: 'Set up this account', default: 'the default account' },
    },
    details: [
      'Root writes to /etc/kyc-tokend. If the package is installed, setup then starts the unit, and waits up to 15 s ' +
        'for a token. A person writes ./kyc-tokend.config.json and starts nothing.',
      'With --base-url, --api-key-file and --api-secret-file, or with --from, it needs no terminal. With --force the ' +
        'same answers change nothing. Files are replaced once the service has given a token, or with --unverified.',
    ],
  },
  {
    name: 'run',
    examples: ['kyc-tokend run', 'kyc-tokend run --config ./kyc-tokend.config.json'],
    load: () => import('./run.ts'),
    summary: 'Run the daemon in the foreground',
    exits: {
      0: 'a signal stopped it',
      69: 'another daemon uses the same sockets or directories',
      75: 'the disk of the runtime directory does not answer',
      78: 'the configuration is faulty',
    },
    options: ofConfig,
    details: ['Logs go to stderr. SIGTERM and SIGINT stop it, SIGHUP is a reload, SIGUSR2 a refresh.'],
  },
  clientCommands.token,
  clientCommands.watch,
  clientCommands.status,
  {
    name: 'alert-test',
    examples: ['sudo kyc-tokend alert-test'],
    load: () => import('./alert-test.ts'),
    summary: 'Rehearse an alert: log, alert.json and alert command',
    exits: {
      69: exitsOfClient[69],
      75: 'a real alert is raised',
      77: 'access is denied',
    },
    options: ofDaemon,
    details: [
      "For root and the daemon's own user. The alert is marked as a test everywhere, and is over after 10 s.",
    ],
  },
  {
    name: 'refresh',
    examples: ['sudo kyc-tokend refresh'],
    load: () => import('./refresh.ts'),
    summary: 'Ask the service for a new token now, and say how it went',
    exits: { 0: 'the service gave a token', ...exitsOfClient, 75: 'the attempt failed' },
    options: ofDaemon,
    details: [
      "For root and the daemon's own user. It also ends a refusal: the daemon asks the service again.",
    ],
  },
  clientCommands.reload,
  clientCommands.reject,
  {
    name: 'check',
    examples: [
      'sudo kyc-tokend check',
      'sudo kyc-tokend check --live',
      'kyc-tokend check --config-only --config kyc-tokend.config.json',
    ],
    load: () => import('../check/check.ts'),
    summary: 'Find the faults of configuration and host, each with its remedy',
    exits: {
      0: 'there is no fault',
      69: 'systemd does not answer',
      75: '--live: the service gives no token',
      77: '--live: the service refuses the account, or access is denied',
      78: 'there is a fault',
    },
    options: {
      ...ofConfig,
      'config-only': { summary: 'Check the configuration alone' },
      live: { summary: 'Also ask the service for a token, once' },
    },
    details: [
      'If a file has faults of its shape (an unknown key, a value of another type), it reports those alone. With sudo ' +
        'it runs within a copy of the installed unit, and asks the daemon for its status at each socket, as a member ' +
        'of its group. It changes nothing.',
    ],
  },
  clientCommands.exec,
  {
    name: 'sandbox',
    examples: [
      'kyc-tokend sandbox --port 8099',
      'kyc-tokend sandbox --port 8099 --scenario outage --token-lifetime 5m',
    ],
    load: () => import('./sandbox.ts'),
    summary: 'Run a stand-in for the service on loopback, to try things and to rehearse outages',
    exits: {
      69: 'the port is in use',
      77: 'the port needs root',
      78: 'the configuration is faulty',
    },
    options: {
      port: { value: 'N', summary: 'Port on 127.0.0.1', default: 'a free one' },
      scenario: { value: 'NAME', summary: 'How it answers', default: 'ok', choices: scenarioNames },
      'token-lifetime': { value: 'DURATION', summary: 'Life of its tokens', default: '60s' },
      config: { value: 'PATH', summary: 'Stand in for the service of this configuration' },
    },
  },
  {
    name: 'demo',
    examples: ['kyc-tokend demo'],
    load: () => import('./demo.ts'),
    summary: 'Run sandbox and daemon in a temporary directory, and show what happens and what to try',
    exits: { 69: 'its directory cannot be made' },
    options: {},
  },
  {
    name: 'completions',
    examples: ['kyc-tokend completions bash'],
    load: async () => ({ run: (await import('./completions.ts')).completionsOf(commands) }),
    summary: 'Print the completions for bash',
    positionals: 'bash',
    options: {},
    details: ['To use them: source <(kyc-tokend completions bash).'],
  },
]
