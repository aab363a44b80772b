//! The cores that an evaluation may use: long evaluations leave one core free.
//!
//! A thread that wakes up on a busy core waits for a few milliseconds, whatever the two priorities
//! are. If long evaluations kept every core busy, each step of each short evaluation, and of the
//! requesting process, would wait in this way.

#[cfg(target_os = "linux")]
pub(crate) use linux::WorkerCores;

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::WorkerCores;

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    };

    use rustix::{
        process::Pid,
        thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity},
    };

    /// The cores that the thread which evaluates may use.
    #[derive(Default)]
    pub(crate) struct WorkerCores {
        chosen: OnceLock<CoreSets>,
        is_restricted: AtomicBool,
    }

    struct CoreSets {
        evaluator: Pid,
        all: CpuSet,
        /// All but the first, so that every process leaves the same one.
        all_but_one: CpuSet,
    }

    impl WorkerCores {
        /// Notes the calling thread as the one that evaluates. On one core there is no choice.
        pub(crate) fn enter(&self) {
            let Ok(all) = sched_getaffinity(None) else { return };
            let first = (0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).filter(|_| all.count() > 1);
            if let Some(first) = first {
                let mut all_but_one = all;
                all_but_one.unset(first);
                let _ = self.chosen.set(CoreSets { evaluator: gettid(), all, all_but_one });
            }
        }

        /// Lets the evaluation use all cores but one from now on, or all of them again.
        pub(crate) fn leave_one(&self, is_restricted: bool) {
            let Some(CoreSets { evaluator, all, all_but_one }) = self.chosen.get() else { return };
            if self.is_restricted.swap(is_restricted, Ordering::SeqCst) != is_restricted {
                // Where this is not permitted, the machine shares its cores as it likes.
                let _ = sched_setaffinity(Some(*evaluator), if is_restricted { all_but_one } else { all });
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn one_core_is_left_and_taken_again() {
            let count = || sched_getaffinity(None).unwrap().count();
            let all = count();
            let cores = WorkerCores::default();
            cores.leave_one(true);
            assert_eq!(count(), all, "no thread evaluates yet");
            cores.enter();
            for _ in 0..2 {
                cores.leave_one(true);
                assert_eq!(count(), (all - 1).max(1));
            }
            cores.leave_one(false);
            assert_eq!(count(), all);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    /// Other systems have no such choice.
    #[derive(Default)]
    pub(crate) struct WorkerCores;

    impl WorkerCores {
        pub(crate) fn enter(&self) {}

        pub(crate) fn leave_one(&self, _is_restricted: bool) {}
    }
}
