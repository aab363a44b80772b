//! Calls that wait for a task to settle.
//!
//! An endpoint is not notified when a caller disconnects, and a task may take hours. So waiting
//! calls do not count as calls in progress, and if too many wait, the oldest one is answered early
//! with the current task.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use sinew_protocol::Token;
use tokio::sync::oneshot;

/// Limit of waiting calls of one process, and of one caller.
const MAX_WAITING: (usize, usize) = (4_096, 1_024);

/// The waiting calls of one process.
#[derive(Debug, Default)]
pub(crate) struct WaitingCalls(Mutex<CallLists>);

/// Waiting calls, for each caller in order of arrival.
#[derive(Debug, Default)]
struct CallLists {
    by_caller: HashMap<Token, BTreeMap<u64, oneshot::Sender<()>>>,
    count: usize,
    next: u64,
}

impl WaitingCalls {
    /// Waits for a future. `None` if too many calls wait and this one has waited longest.
    pub(crate) async fn wait<T>(&self, caller: &Token, work: impl Future<Output = T>) -> Option<T> {
        let (entry, given_up) = self.enter(caller);
        let ended = tokio::select! {
            biased;
            ended = work => Some(ended),
            _ = given_up => None,
        };
        drop(entry);
        ended
    }

    fn enter<'a>(&'a self, caller: &'a Token) -> (WaitingEntry<'a>, oneshot::Receiver<()>) {
        let (sender, given_up) = oneshot::channel();
        let mut lists = self.lists();
        let number = lists.next;
        lists.next += 1;
        lists.count += 1;
        lists.by_caller.entry(caller.clone()).or_default().insert(number, sender);
        lists.shorten(caller);
        (WaitingEntry { calls: self, caller, number }, given_up)
    }

    fn lists(&self) -> std::sync::MutexGuard<'_, CallLists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallLists {
    /// Ends the oldest call of a caller over its limit, or of the caller with the most calls if the
    /// total is over its limit.
    fn shorten(&mut self, caller: &Token) {
        let (all, of_caller) = MAX_WAITING;
        if self.by_caller.get(caller).is_some_and(|calls| calls.len() > of_caller) {
            self.give_up_oldest(&caller.clone());
        }
        if self.count > all
            && let Some((most, _)) = self.by_caller.iter().max_by_key(|(_, calls)| calls.len())
        {
            self.give_up_oldest(&most.clone());
        }
    }

    fn give_up_oldest(&mut self, caller: &Token) {
        let oldest = self.by_caller.get(caller).and_then(|calls| calls.keys().next().copied());
        if let Some(sender) = oldest.and_then(|number| self.remove(caller, number)) {
            let _ = sender.send(());
        }
    }

    fn remove(&mut self, caller: &Token, number: u64) -> Option<oneshot::Sender<()>> {
        let calls = self.by_caller.get_mut(caller)?;
        let removed = calls.remove(&number)?;
        if calls.is_empty() {
            self.by_caller.remove(caller);
        }
        self.count -= 1;
        Some(removed)
    }
}

/// Entry of a waiting call, removed on drop.
struct WaitingEntry<'a> {
    calls: &'a WaitingCalls,
    caller: &'a Token,
    number: u64,
}

impl Drop for WaitingEntry<'_> {
    fn drop(&mut self) {
        self.calls.lists().remove(self.caller, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Polls a wait once.
    fn poll<T>(wait: Pin<&mut impl Future<Output = Option<T>>>) -> Poll<Option<T>> {
        wait.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn the_call_that_waited_longest_is_given_up() {
        let calls = WaitingCalls::default();
        let (all, of_caller) = MAX_WAITING;
        let callers: Vec<Token> = (0..=all / of_caller).map(|n| Token::of(&format!("caller-{n}"))).collect();
        let mut waits: Vec<_> = callers[..all / of_caller]
            .iter()
            .flat_map(|caller| (0..of_caller).map(move |_| caller))
            .map(|caller| Box::pin(calls.wait(caller, pending::<()>())))
            .collect();
        assert!(waits.iter_mut().all(|wait| poll(wait.as_mut()).is_pending()));
        // Another call of the second caller ends its oldest; one of another caller ends the oldest
        // of the caller with the most.
        let mut more = pin!(calls.wait(&callers[1], pending::<()>()));
        assert_eq!(poll(more.as_mut()), Poll::Pending);
        let mut ended: Vec<usize> = (0..all).filter(|nth| poll(waits[*nth].as_mut()).is_ready()).collect();
        assert_eq!(ended, [of_caller]);
        drop(waits.remove(of_caller));
        let mut other = pin!(calls.wait(&callers[all / of_caller], pending::<()>()));
        assert_eq!(poll(other.as_mut()), Poll::Pending);
        ended = (0..waits.len()).filter(|nth| poll(waits[*nth].as_mut()).is_ready()).collect();
        assert_eq!(ended.len(), 1, "{ended:?}");
        assert_eq!(ended[0] % of_caller, usize::from(ended[0] > of_caller) * (of_caller - 1), "{ended:?}");
    }

    #[test]
    fn calls_that_ended_or_were_dropped_leave_no_trace() {
        let (calls, caller) = (WaitingCalls::default(), Token::of("caller"));
        assert_eq!(poll(pin!(calls.wait(&caller, ready(7))).as_mut()), Poll::Ready(Some(7)));
        let mut waiting = Box::pin(calls.wait(&caller, pending::<()>()));
        assert_eq!(poll(waiting.as_mut()), Poll::Pending);
        assert_eq!(calls.lists().count, 1);
        drop(waiting);
        let lists = calls.lists();
        assert_eq!((lists.count, lists.by_caller.len()), (0, 0));
    }
}
