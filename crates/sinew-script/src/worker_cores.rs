//! The cores that an evaluation may use: long evaluations leave one core free.
//!
//! A thread that wakes up on a busy core waits for a few milliseconds, regardless of the two
//! priorities. If long evaluations occupied every core, each step of each short evaluation, and of
//! the requesting process, would be delayed in this way.

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

    /// Cores that the evaluating thread may use.
    #[derive(Default)]
    pub(crate) struct WorkerCores {
        chosen: OnceLock<CoreSets>,
        is_restricted: AtomicBool,
    }

    struct CoreSets {
        evaluator: Pid,
        all: CpuSet,
        /// All but the first, so that every process leaves the same core free.
        all_but_one: CpuSet,
    }

    impl WorkerCores {
        /// Registers the calling thread as the evaluating one. Has no effect on a single core.
        pub(crate) fn enter(&self) {
            let Ok(all) = sched_getaffinity(None) else { return };
            let first = (0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).filter(|_| all.count() > 1);
            if let Some(first) = first {
                let mut all_but_one = all;
                all_but_one.unset(first);
                let _ = self.chosen.set(CoreSets { evaluator: gettid(), all, all_but_one });
            }
        }

        /// Restricts the evaluation to all cores but one, or removes the restriction.
        pub(crate) fn leave_one(&self, is_restricted: bool) {
            let Some(CoreSets { evaluator, all, all_but_one }) = self.chosen.get() else { return };
            if self.is_restricted.swap(is_restricted, Ordering::SeqCst) != is_restricted {
                // If this is not permitted, the system schedules as usual.
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
    /// Other systems do not support this.
    #[derive(Default)]
    pub(crate) struct WorkerCores;

    impl WorkerCores {
        pub(crate) fn enter(&self) {}

        pub(crate) fn leave_one(&self, _is_restricted: bool) {}
    }
}
