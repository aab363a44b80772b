//! Limits of each caller: request rate, concurrent requests and open streams.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sinew_protocol::Token;
use sinew_protocol::access::KeyLimits;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::caller::CallerIdentity;

/// Maximum number of callers whose usage is tracked.
const MAX_CALLERS: u64 = 100_000;
/// Idle time after which a caller's usage is dropped. It exceeds [`BURST`], so dropping it grants
/// no additional requests.
const FORGET_AFTER: Duration = Duration::from_mins(10);
/// One caller may open the gateway's streams divided by this number, and at least this number.
const STREAM_PARTS: usize = 10;
const MIN_STREAMS: usize = 32;
/// Burst allowance: the requests of this duration may arrive at once.
const BURST: Duration = Duration::from_secs(10);

/// Usage of a gateway by its callers.
pub(crate) struct CallerMeters {
    /// Limits of callers whose key has no limits.
    limits: KeyLimits,
    /// By caller and limits: a key with changed limits gets a new meter, and callers with one label
    /// but different limits do not reset each other's meter.
    meters: moka::sync::Cache<(Token, KeyLimits), Arc<CallerMeter>>,
}

/// Usage by one caller.
struct CallerMeter {
    limits: KeyLimits,
    rate: Option<RateMeter>,
    in_flight: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

/// Reason why a request exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MeterRefusal {
    /// Rate limit exceeded; the next request is accepted after this duration.
    Rate(Duration),
    /// Too many concurrent requests.
    InFlight,
}

/// Permit of a request from its caller's limits.
pub(crate) struct CallerPermit {
    meter: Arc<CallerMeter>,
    _in_flight: OwnedSemaphorePermit,
}

/// Stream permits of one caller.
#[derive(Clone)]
pub(crate) struct CallerStreams(Arc<Semaphore>);

impl CallerStreams {
    /// Acquires a permit for a stream, or returns `None` if the limit is reached.
    pub(crate) fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
}

impl CallerPermit {
    /// Returns the caller's stream permits.
    pub(crate) fn streams(&self) -> CallerStreams {
        CallerStreams(Arc::clone(&self.meter.streams))
    }

    /// Returns the caller's maximum body size. `None`: the gateway's limit applies.
    pub(crate) fn body_bytes(&self) -> Option<u64> {
        self.meter.limits.body_bytes
    }
}

impl CallerMeters {
    /// Creates meters with these limits for callers whose key has no limits. By default, one caller
    /// may open a fraction of the gateway's streams.
    pub(crate) fn new(limits: KeyLimits, gateway_streams: usize) -> Self {
        let part = (gateway_streams / STREAM_PARTS).max(MIN_STREAMS).min(gateway_streams);
        let streams = limits.streams.or_else(|| u32::try_from(part).ok());
        let limits = KeyLimits { streams, ..limits };
        let meters =
            moka::sync::Cache::builder().max_capacity(MAX_CALLERS).time_to_idle(FORGET_AFTER).build();
        Self { limits, meters }
    }

    /// Counts a request of a caller.
    pub(crate) fn enter(&self, caller: &CallerIdentity) -> Result<CallerPermit, MeterRefusal> {
        let limits = over(caller.limits, self.limits);
        let name = (caller.label().clone(), limits);
        let meter = self.meters.get_with(name, || Arc::new(CallerMeter::new(limits)));
        if let Some(rate) = &meter.rate {
            rate.take(Instant::now()).map_err(MeterRefusal::Rate)?;
        }
        let in_flight = Arc::clone(&meter.in_flight).try_acquire_owned();
        let in_flight = in_flight.map_err(|_| MeterRefusal::InFlight)?;
        Ok(CallerPermit { meter, _in_flight: in_flight })
    }
}

/// Combines the limits of a key with those of the gateway as defaults.
fn over(key: KeyLimits, gateway: KeyLimits) -> KeyLimits {
    KeyLimits {
        requests_per_second: key.requests_per_second.or(gateway.requests_per_second),
        in_flight: key.in_flight.or(gateway.in_flight),
        streams: key.streams.or(gateway.streams),
        body_bytes: key.body_bytes.or(gateway.body_bytes),
    }
}

impl CallerMeter {
    fn new(limits: KeyLimits) -> Self {
        let places = |limit: Option<u32>| {
            let most = limit.map_or(Semaphore::MAX_PERMITS, |limit| limit as usize);
            Arc::new(Semaphore::new(most))
        };
        Self {
            limits,
            rate: limits.requests_per_second.map(RateMeter::new),
            in_flight: places(limits.in_flight),
            streams: places(limits.streams),
        }
    }
}

/// Request rate: each request consumes its share of a second, up to [`BURST`] in advance.
struct RateMeter {
    share: Duration,
    /// Time at which everything consumed so far would have been earned.
    earned_at: Mutex<Option<Instant>>,
}

impl RateMeter {
    fn new(per_second: u32) -> Self {
        Self { share: Duration::from_secs(1) / per_second.max(1), earned_at: Mutex::new(None) }
    }

    /// Consumes one share, or returns the time until one is available.
    fn take(&self, now: Instant) -> Result<(), Duration> {
        let mut earned_at = self.earned_at.lock().unwrap_or_else(PoisonError::into_inner);
        let next = earned_at.unwrap_or(now).max(now) + self.share;
        let ahead = next - now;
        if let Some(wait) = ahead.checked_sub(BURST).filter(|wait| !wait.is_zero()) {
            return Err(wait);
        }
        *earned_at = Some(next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_gives_a_burst_and_then_its_share() {
        let (rate, begin) = (RateMeter::new(2), Instant::now());
        assert!((0..20).all(|_| rate.take(begin).is_ok()), "ten seconds ahead");
        assert_eq!(rate.take(begin), Err(Duration::from_millis(500)));
        assert_eq!(rate.take(begin + Duration::from_millis(500)), Ok(()));
        assert!(rate.take(begin + Duration::from_millis(600)).is_err());
        let later = begin + Duration::from_mins(5);
        assert_eq!((0..30).filter(|_| rate.take(later).is_ok()).count(), 20, "nothing is saved up beyond");
    }

    #[test]
    fn callers_have_places_of_their_own() {
        let meters = CallerMeters::new(KeyLimits { in_flight: Some(2), ..KeyLimits::default() }, 400);
        let one = CallerIdentity::own(Token::of("one"));
        let other = CallerIdentity {
            limits: KeyLimits { in_flight: Some(1), streams: Some(1), ..KeyLimits::default() },
            ..CallerIdentity::own(Token::of("other"))
        };
        let (first, _second) = (meters.enter(&one).ok(), meters.enter(&one).ok());
        assert_eq!(meters.enter(&one).err(), Some(MeterRefusal::InFlight));
        let held = meters.enter(&other).ok().unwrap();
        assert_eq!(meters.enter(&other).err(), Some(MeterRefusal::InFlight), "the key's limit counts");
        // Without its own limit, a caller gets a fraction of the gateway's streams.
        let usual = first.as_ref().unwrap().streams();
        assert_eq!(
            std::iter::repeat_with(|| usual.enter())
                .map_while(|place| place)
                .take(99)
                .collect::<Vec<_>>()
                .len(),
            40
        );
        let stream = held.streams().enter();
        assert!(stream.is_some() && held.streams().enter().is_none());
        let same_label = CallerIdentity { limits: other.limits, ..one.clone() };
        assert!(meters.enter(&same_label).is_ok(), "other limits, another meter");
        assert_eq!(meters.enter(&one).err(), Some(MeterRefusal::InFlight), "which changes nothing here");
        drop(first);
        assert!(meters.enter(&one).is_ok(), "a place that was given back");
    }
}
