//! Requests to a worker and its responses, as frames of its protocol.
//!
//! A frame is the length of its content (four bytes, little-endian), followed by JSON.

use std::{
    io::{self, Read, Write},
    sync::Arc,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{error::ScriptError, limits::Limits};

/// Maximum size of a frame that a worker reads, in bytes.
pub(crate) const MAX_REQUEST_BYTES: usize = 32 << 20;

/// Source of a function with its limits: the key of a compiled program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct FunctionText {
    pub(crate) source: String,
    pub(crate) limits: Limits,
}

/// Function, and the operation of a worker on it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EvaluationRequest {
    pub(crate) function: Arc<FunctionText>,
    pub(crate) action: EvaluationAction,
}

/// Operation of a worker on a function.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum EvaluationAction {
    /// Compile it, to check whether it is valid.
    Compile,
    /// Call it with this argument.
    Call(Value),
}

/// Response of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EvaluationResponse {
    pub(crate) result: Result<Value, ScriptError>,
    /// Text that the script printed.
    #[serde(default)]
    pub(crate) printed: String,
    /// Processor time of the evaluation.
    pub(crate) cpu_micros: u64,
    /// Whether the worker exits after this response: it has grown, has run long enough, or the
    /// interpreter failed.
    pub(crate) retires: bool,
}

/// Encodes a frame.
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

/// Reads a frame of at most `max_bytes` bytes.
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
