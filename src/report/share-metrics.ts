// Metrics of the shared token, absent where the host does not share.
import type { Metric, ShareSample } from './metric.ts'
import { histogramValues, type Value } from './prometheus-text.ts'

export const SHARE_METRICS: readonly Metric[] = [
  {
    name: 'kyc_tokend_share_connected',
    type: 'gauge',
    help: '1 while the shared store can be used, else 0.',
    read: ofShare(({ state }) => Number(state === 'connected')),
  },
  {
    name: 'kyc_tokend_share_hosts',
    type: 'gauge',
    help: 'Hosts that listened to the last answer.',
    read: ofShare(({ hosts }) => hosts),
  },
  {
    name: 'kyc_tokend_share_outcomes_total',
    type: 'counter',
    help: 'Outcomes by the way on which they came.',
    read: ofShare(({ outcomes }) =>
      Object.entries(outcomes).map(([how, value]) => ({ labels: { how }, value })),
    ),
  },
  {
    name: 'kyc_tokend_share_stale_writes_total',
    type: 'counter',
    help: 'Answers that came after those of another host and were dropped.',
    read: ofShare(({ staleWrites }) => staleWrites),
  },
  {
    name: 'kyc_tokend_share_unreadable_total',
    type: 'counter',
    help: 'Records in the shared store that do not open.',
    read: ofShare(({ unreadable }) => unreadable),
  },
  {
    name: 'kyc_tokend_share_lag_seconds',
    type: 'histogram',
    help: 'Time from the publication of an answer to its reception.',
    read: ofShare(({ lag }) => histogramValues(lag)),
  },
]

function ofShare(read: (share: ShareSample) => number | readonly Value[] | null): Metric['read'] {
  return ({ sample }) => (sample.share === null ? null : read(sample.share))
}
