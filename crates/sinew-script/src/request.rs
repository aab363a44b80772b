//! Requests to a worker and its answers, as frames of its protocol.
//!
//! A frame is the length of its content (four bytes, little-endian), followed by JSON.

use std::{
    io::{self, Read, Write},
    sync::Arc,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{error::ScriptError, limits::Limits};

/// Largest frame that a worker reads, in bytes.
pub(crate) const MAX_REQUEST_BYTES: usize = 32 << 20;

/// The text of a function with its limits: what a compiled program is known by.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct FunctionText {
    pub(crate) source: String,
    pub(crate) limits: Limits,
}

/// A function, and what a worker does with it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EvaluationRequest {
    pub(crate) function: Arc<FunctionText>,
    pub(crate) action: EvaluationAction,
}

/// Operation of a worker on a function.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum EvaluationAction {
    /// Compile it, to see whether it can be.
    Compile,
    /// Call it with this argument.
    Call(Value),
}

/// Answer of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EvaluationResponse {
    pub(crate) result: Result<Value, ScriptError>,
    /// Text that the script printed.
    #[serde(default)]
    pub(crate) printed: String,
    /// Processor time of the evaluation.
    pub(crate) cpu_micros: u64,
    /// The worker ends after this answer: it has grown, it has worked long enough, or the interpreter failed.
    pub(crate) retires: bool,
}

/// The bytes of a frame.
pub(crate) fn encode_frame(content: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, content)?;
    let length = u32::try_from(frame.len() - 4).map_err(|_| io::ErrorKind::FileTooLarge)?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// Writes a frame.
pub(crate) fn write_frame(mut writer: impl Write, content: &impl Serialize) -> io::Result<()> {
    writer.write_all(&encode_frame(content)?)?;
    writer.flush()
}

/// Reads a frame of at most so many bytes.
pub(crate) fn read_frame<T: DeserializeOwned>(mut reader: impl Read, max_bytes: usize) -> io::Result<T> {
    let mut length = [0; 4];
    reader.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > max_bytes {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut content = vec![0; length];
    reader.read_exact(&mut content)?;
    Ok(serde_json::from_slice(&content)?)
}
