// Metrics of the shared token, absent where the host does not share.
import { counter, gauge, histogram, type Metric, type ShareSample } from './metric.ts'
import { histogramValues, type Value } from './prometheus-text.ts'

export const SHARE_METRICS: readonly Metric[] = [
  gauge(
    'kyc_tokend_share_connected',
    '1 while the shared store can be used, else 0.',
    ofShare(({ state }) => Number(state === 'connected')),
  ),
  gauge(
    'kyc_tokend_share_hosts',
    'Hosts that listened to the last answer.',
    ofShare(({ hosts }) => hosts),
  ),
  counter(
    'kyc_tokend_share_outcomes_total',
    'Outcomes by the way on which they came.',
    ofShare(({ outcomes }) => Object.entries(outcomes).map(([how, value]) => ({ labels: { how }, value }))),
  ),
  counter(
    'kyc_tokend_share_stale_writes_total',
    'Answers that came after those of another host and were dropped.',
    ofShare(({ staleWrites }) => staleWrites),
  ),
  counter(
    'kyc_tokend_share_unreadable_total',
    'Records in the shared store that do not open.',
    ofShare(({ unreadable }) => unreadable),
  ),
  histogram(
    'kyc_tokend_share_lag_seconds',
    'Time from the publication of an answer to its reception.',
    ofShare(({ lag }) => histogramValues(lag)),
  ),
]

function ofShare(read: (share: ShareSample) => number | readonly Value[] | null): Metric['read'] {
  return ({ sample }) => (sample.share === null ? null : read(sample.share))
}
