// Every command as data, from which help, completions and manual come. Only the one that is run is loaded.
import type { Commands } from '../terminal/command.ts'
import { scenarioNames } from '../sandbox/scenarios.ts'
import { clientCommands, ofAccount, ofDaemon } from './client-specs.ts'
import { completionsOf } from './command-line.ts'

const ofConfig = {
  config: {
    value: 'PATH',
    summary: 'The configuration file',
    default:
      '$KYC_TOKEND_CONFIG, else kyc-tokend.config.json, .yaml or .yml here (not for root) or in /etc/kyc-tokend',
  },
  ...ofAccount,
}

const ofSetup = {
  'base-url': { value: 'URL', summary: 'Address of the service' },
  'api-key-file': { value: 'FILE', summary: 'File with the API key' },
  'api-secret-file': { value: 'FILE', summary: 'File with the API secret' },
  'expires-at': { value: 'DATE', summary: 'When key and secret end, such as 2027-03-01' },
  kind: {
    value: 'KIND',
    summary: 'How the service wants the login',
    default: 'kyc',
    choices: ['kyc', 'oauth2'],
  },
  'token-url': { value: 'URL', summary: 'Token endpoint of an OAuth2 service' },
  from: { value: 'FILE', summary: 'All in one: a configuration (JSON) with key and secret; - for stdin' },
  force: { summary: 'Replace an existing configuration; its other settings stay, without --from' },
  unverified: { summary: 'Put the files in place though the service gave no token' },
  ...ofAccount,
}

export const commands: Commands = {
  setup: {
    async load() {
      const [{ setupWith }, { checkLive }] = await Promise.all([
        import('../setup/setup.ts'),
        import('../check/check.ts'),
      ])
      return setupWith(checkLive)
    },
    summary: 'Write configuration and secrets, check them with the service, and start the daemon',
    options: ofSetup,
    details:
      'It asks for what is not given. Root writes to /etc/kyc-tokend, starts the unit, and waits up to 15 s for a ' +
      'token. A person writes ./kyc-tokend.config.json and starts nothing. Exit status: 77 the service refuses key ' +
      'and secret; 75 it gave no token, or another setup runs; 78 there is a configuration, or the new one is faulty.',
  },
  run: {
    load: async () => (await import('./foreground.ts')).run,
    summary: 'Run the daemon in the foreground',
    options: ofConfig,
    details: 'Logs go to stderr. SIGTERM and SIGINT stop it, SIGHUP is a reload, SIGUSR2 a refresh.',
  },
  token: clientCommands.token,
  watch: clientCommands.watch,
  status: clientCommands.status,
  'alert-test': {
    load: async () => (await import('./operators.ts')).alertTest,
    summary: 'Rehearse an alert: log, alert.json and alert command',
    options: ofDaemon,
    details:
      "For root and the daemon's own user. The alert is marked as a test, and is over after 10 s. Exit status 75: " +
      'another alert is raised.',
  },
  refresh: {
    load: async () => (await import('./operators.ts')).refresh,
    summary: 'Ask the service for a new token now, and say how it went',
    options: ofDaemon,
    details: "For root and the daemon's own user. It also ends a refusal.",
  },
  reload: clientCommands.reload,
  reject: clientCommands.reject,
  check: {
    load: async () => (await import('../check/check.ts')).run,
    summary: 'Find the faults of configuration and host, each with its remedy',
    options: {
      ...ofConfig,
      'config-only': { summary: 'Check the configuration alone' },
      live: { summary: 'Also ask the service for a token, once' },
    },
    details:
      "It changes nothing. With sudo it reads the configuration as the daemon's user, and asks at each socket as a " +
      'member of its group. Exit status: 78 there is a fault; with --live 77 the service refuses the account, 75 it ' +
      'gave no token.',
  },
  exec: clientCommands.exec,
  sandbox: {
    load: async () => (await import('./foreground.ts')).sandbox,
    summary: 'Run a stand-in for the service on loopback',
    options: {
      port: { value: 'N', summary: 'Port on 127.0.0.1', default: 'a free one' },
      scenario: { value: 'NAME', summary: 'How it answers', default: 'ok', choices: scenarioNames },
      'token-lifetime': { value: 'DURATION', summary: 'Life of its tokens', default: '60s' },
      config: { value: 'PATH', summary: 'Stand in for the service of this configuration' },
    },
  },
  demo: {
    load: async () => (await import('./foreground.ts')).demo,
    summary: 'Run sandbox and daemon in a temporary directory, and show what to try',
    options: {},
  },
  completions: {
    load: async () => completionsOf(commands),
    summary: 'Print the completions for bash, for: source <(kyc-tokend completions)',
    options: {},
  },
}
