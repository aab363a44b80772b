//! The budget of one check: steps, bytes and stack.
//!
//! Recursive schemas are checked by recursion, and alternatives multiply the work: a few lines of
//! schema can require 2^100 steps. The validator has no counter, so its values count instead: every
//! access to a value costs steps, every violation costs bytes. An exhausted budget unwinds out of
//! the validator, because the validator has no other exit; the unwinding starts without the panic
//! hook and ends in [`CheckBudget::spend`].

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::cost::{SchemaCost, ValueSize};

/// Steps of every check.
const BASE_STEPS: u64 = 100_000;
/// Additional steps for each value below the root, for small values.
const STEPS_PER_VALUE: u64 = 256;
/// Number of steps above which a check gets only [`STEPS_PER_LARGE_VALUE`] for each value.
const MAX_STEPS_OF_SMALL_VALUES: u64 = 1_000_000;
/// Steps per value of a large value.
const STEPS_PER_LARGE_VALUE: u64 = 16;
/// Maximum memory of one check in addition to the value, in bytes.
const MAX_CHECK_BYTES: u64 = 32 << 20;
/// Maximum stack of one check, in bytes.
const MAX_CHECK_STACK: usize = 1 << 20;

/// Steps for a number that exceeds a machine word: the validator processes its digits.
const LARGE_NUMBER_STEPS: u64 = 8;

/// The check exceeded its limit of steps, memory or stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BudgetExceeded;

/// Steps and bytes of one check.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckBudget {
    steps: u64,
    bytes: u64,
}

impl CheckBudget {
    /// Returns the budget for a value of this size.
    pub(super) fn of_value(size: ValueSize) -> Self {
        let small = BASE_STEPS.saturating_add(size.values.saturating_mul(STEPS_PER_VALUE));
        let large = size.values.saturating_mul(STEPS_PER_LARGE_VALUE);
        Self { steps: small.min(MAX_STEPS_OF_SMALL_VALUES.max(large)), bytes: MAX_CHECK_BYTES }
    }

    /// Runs the work within the budget; `error_bytes` is the price of one violation.
    pub(super) fn spend<T>(
        self,
        cost: &SchemaCost,
        error_bytes: u64,
        work: impl FnOnce() -> T,
    ) -> Result<T, BudgetExceeded> {
        let base = 0_u8;
        let _restored = METER.with(|meter| {
            meter.replace(&MeterState {
                steps: self.steps,
                bytes: self.bytes,
                step_price: cost.step_price,
                character_price: cost.character_price,
                name_price: cost.name_price,
                number_price: cost.number_price,
                error_bytes,
                stack_base: std::ptr::from_ref(&base).addr(),
                max_stack: MAX_CHECK_STACK,
            })
        });
        catch_unwind(AssertUnwindSafe(work)).map_err(|reason| match reason.downcast::<BudgetExceeded>() {
            Ok(exceeded) => *exceeded,
            Err(panic) => resume_unwind(panic),
        })
    }
}

/// State of the running check. Without one, nothing is charged.
#[derive(Clone, Copy)]
struct MeterState {
    steps: u64,
    bytes: u64,
    step_price: u64,
    character_price: u64,
    name_price: u64,
    number_price: u64,
    error_bytes: u64,
    stack_base: usize,
    max_stack: usize,
}

const UNLIMITED: MeterState = MeterState {
    steps: u64::MAX,
    bytes: u64::MAX,
    step_price: 0,
    character_price: 0,
    name_price: 0,
    number_price: 0,
    error_bytes: 0,
    stack_base: 0,
    max_stack: usize::MAX,
};

/// Meter of this thread. It cannot be a parameter, because the validator creates nodes for property
/// names itself.
struct ThreadMeter(Cell<MeterState>);

thread_local! {
    static METER: ThreadMeter = const { ThreadMeter(Cell::new(UNLIMITED)) };
}

impl ThreadMeter {
    fn replace(&self, state: &MeterState) -> RestoredMeter {
        RestoredMeter(self.0.replace(*state))
    }

    fn take(&self, steps: u64, bytes: u64) {
        let here = 0_u8;
        let mut state = self.0.get();
        let stack = std::ptr::from_ref(&here).addr().abs_diff(state.stack_base);
        let steps = steps.saturating_mul(state.step_price);
        match (state.steps.checked_sub(steps), state.bytes.checked_sub(bytes)) {
            (Some(steps), Some(bytes)) if stack <= state.max_stack => {
                (state.steps, state.bytes) = (steps, bytes);
                self.0.set(state);
            }
            _ => resume_unwind(Box::new(BudgetExceeded)),
        }
    }

    fn stack(&self) -> u64 {
        let here = 0_u8;
        let state = self.0.get();
        match state.max_stack {
            usize::MAX => 0,
            _ => std::ptr::from_ref(&here).addr().abs_diff(state.stack_base) as u64,
        }
    }
}

/// Restores the state before the check when dropped.
struct RestoredMeter(MeterState);

impl Drop for RestoredMeter {
    fn drop(&mut self) {
        METER.with(|meter| meter.0.set(self.0));
    }
}

/// Charges an access to a value.
pub(super) fn pay_step() {
    METER.with(|meter| meter.take(1, 0));
}

/// Charges an access to data of this many bytes.
pub(super) fn pay_read(bytes: usize) {
    METER.with(|meter| meter.take(1 + bytes as u64 / 32, 0));
}

/// Charges a string that a pattern or format may read.
pub(super) fn pay_text(bytes: usize) {
    METER.with(|meter| {
        let price = meter.0.get().character_price;
        meter.take(1 + (bytes as u64).saturating_mul(1 + price) / 16, 0);
    });
}

/// Charges a number that may be divided exactly; `large` if it exceeds a machine word.
pub(super) fn pay_number(large: bool) {
    METER.with(|meter| {
        let price = meter.0.get().number_price.max(if large { LARGE_NUMBER_STEPS } else { 1 });
        meter.take(price, 0);
    });
}

/// Charges the name of a property, which patterns may read and errors may repeat.
pub(super) fn pay_name(bytes: usize) {
    METER.with(|meter| {
        let MeterState { name_price, error_bytes, .. } = meter.0.get();
        let repeated = if error_bytes == 0 { 0 } else { 64 + bytes as u64 };
        meter.take(1 + (1 + bytes as u64).saturating_mul(1 + name_price) / 16, repeated);
    });
}

/// Charges an entry of the validator's stack and memory, which it searches linearly.
pub(super) fn pay_visit() {
    METER.with(|meter| meter.take(1 + meter.stack() / 2048, 48));
}

/// Charges a violation.
pub(super) fn pay_error() {
    METER.with(|meter| {
        let price = meter.0.get().error_bytes;
        meter.take(1, price);
    });
}
