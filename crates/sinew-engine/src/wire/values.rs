//! Encoding of repeated values as references.
//!
//! A reply, its output, the tokens that carry it and the end of the execution often contain the
//! same value.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::decode::{self, Bad, Decoded};
use super::encode;
use crate::SharedJson;

/// Minimum size of a value that may be referenced.
const MIN_BYTES: usize = 64;
/// First byte of a reference, before the number of the value: no JSON starts with it.
const REFERENCE: u8 = 0;

/// Writes the shared values of one round, in order.
#[derive(Default)]
pub(super) struct ValueWriter {
    /// Numbers of the values of at least [`MIN_BYTES`] by content, so that equal rounds give equal
    /// bytes regardless of sharing.
    by_content: BTreeMap<Bytes, u32>,
    /// Numbers by address, so that a value is serialized once. The facts keep the values alive
    /// while they are written.
    by_address: BTreeMap<*const Value, u32>,
    has_references: bool,
}

impl ValueWriter {
    /// Returns the bytes of a value, or a reference to an equal value earlier in the round.
    pub(super) fn write(&mut self, value: &SharedJson) -> Bytes {
        if let Some(number) = self.by_address.get(&Arc::as_ptr(value)) {
            let number = *number;
            return self.reference(number);
        }
        let bytes = encode::json(value);
        let Ok(next) = u32::try_from(self.by_content.len()) else { return bytes };
        if bytes.len() < MIN_BYTES {
            return bytes;
        }
        let number = *self.by_content.entry(bytes.clone()).or_insert(next);
        self.by_address.insert(Arc::as_ptr(value), number);
        if number == next { bytes } else { self.reference(number) }
    }

    fn reference(&mut self, number: u32) -> Bytes {
        self.has_references = true;
        [&[REFERENCE][..], &number.to_le_bytes()].concat().into()
    }

    /// Returns true if readers have to support references.
    pub(super) fn has_references(&self) -> bool {
        self.has_references
    }
}

/// Reads the shared values of one round, in the order in which they were written.
#[derive(Default)]
pub(super) struct ValueReader {
    values: Vec<SharedJson>,
}

impl ValueReader {
    /// Returns the value of these bytes, or the referenced value.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Decoded<SharedJson> {
        if let Some((&REFERENCE, number)) = bytes.split_first() {
            let number = number.try_into().map_err(|_| Bad::Missing("reference to a value"))?;
            let place = usize::try_from(u32::from_le_bytes(number)).unwrap_or(usize::MAX);
            return self.values.get(place).cloned().ok_or(Bad::Missing("value that is referred to"));
        }
        let value = Arc::new(decode::json(bytes)?);
        if bytes.len() >= MIN_BYTES {
            self.values.push(Arc::clone(&value));
        }
        Ok(value)
    }
}
