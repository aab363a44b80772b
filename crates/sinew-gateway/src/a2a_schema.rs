//! A2A messages between protobuf and JSON, based on the schema in `proto/`.

use std::sync::LazyLock;

use bytes::Bytes;
use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor};
use serde_json::{Number, Value};
use sinew_protocol::a2a::{A2aError, CoreMethod};

use crate::operations::short;

/// Name of the A2A service.
const SERVICE: &str = "lf.a2a.v1.A2AService";
/// Integers up to this value convert to floating-point numbers without loss.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

/// Descriptors of the schemas. Decoding cannot fail, because tests decode the same bytes.
static SCHEMAS: LazyLock<Result<DescriptorPool, String>> = LazyLock::new(|| {
    let bytes: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/schemas.bin"));
    DescriptorPool::decode(bytes).map_err(|error| error.to_string())
});

/// Message types of an operation's request and result.
#[derive(Clone, Debug)]
pub(crate) struct OperationSchema {
    pub(crate) method: CoreMethod,
    pub(crate) is_stream: bool,
    input: MessageDescriptor,
    output: MessageDescriptor,
}

impl OperationSchema {
    /// Returns the operation with this name, or `None` if A2A does not define it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let method = CoreMethod::ALL.iter().copied().find(|method| method.wire_name() == name)?;
        let service = SCHEMAS.as_ref().ok()?.get_service_by_name(SERVICE)?;
        let found = service.methods().find(|method| method.name() == name)?;
        Some(Self {
            method,
            is_stream: found.is_server_streaming(),
            input: found.input(),
            output: found.output(),
        })
    }

    /// Decodes a request into A2A's JSON.
    pub(crate) fn read_request(&self, bytes: Bytes) -> Result<Value, A2aError> {
        let unreadable = |reason: String| {
            A2aError::invalid_params(format!("the message cannot be read: {}", short(&reason, 300)))
        };
        let message = DynamicMessage::decode(self.input.clone(), bytes);
        let message = message.map_err(|error| unreadable(error.to_string()))?;
        let mut request = serde_json::to_value(&message).map_err(|error| unreadable(error.to_string()))?;
        restore_whole_numbers(&mut request);
        Ok(request)
    }

    /// Encodes a result from A2A's JSON as a message.
    pub(crate) fn word_result(&self, json: &[u8]) -> Result<Bytes, A2aError> {
        encode(&self.output, json)
            .map_err(|reason| A2aError::internal(format!("the result is not an A2A message: {reason}")))
    }
}

/// Encodes JSON as a message of this type.
pub(crate) fn encode_named(name: &str, json: &[u8]) -> Result<Bytes, String> {
    let schemas = SCHEMAS.as_ref().map_err(Clone::clone)?;
    let descriptor = schemas.get_message_by_name(name).ok_or_else(|| format!("{name} is unknown"))?;
    encode(&descriptor, json)
}

/// Returns a message in JSON without members that have their default value.
pub(crate) fn without_defaults(name: &str, json: &Value) -> Result<Value, String> {
    let schemas = SCHEMAS.as_ref().map_err(Clone::clone)?;
    let descriptor = schemas.get_message_by_name(name).ok_or_else(|| format!("{name} is unknown"))?;
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let message = DynamicMessage::deserialize_with_options(descriptor, json, &options);
    let message = message.map_err(|error| error.to_string())?;
    let mut form = serde_json::to_value(&message).map_err(|error| error.to_string())?;
    restore_whole_numbers(&mut form);
    Ok(form)
}

/// Returns whether the schemas define this message type.
pub(crate) fn is_known(name: &str) -> bool {
    SCHEMAS.as_ref().is_ok_and(|schemas| schemas.get_message_by_name(name).is_some())
}

fn encode(descriptor: &MessageDescriptor, json: &[u8]) -> Result<Bytes, String> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    // A2A clients and servers ignore unknown members.
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let message = DynamicMessage::deserialize_with_options(descriptor.clone(), &mut reader, &options);
    Ok(message.map_err(|error| error.to_string())?.encode_to_vec().into())
}

/// Restores integers: protobuf has only floating-point numbers in `data` and `metadata`, so that 5
/// becomes 5.0.
fn restore_whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let whole =
                number.as_f64().filter(|it| number.is_f64() && it.fract() == 0.0 && it.abs() <= MAX_WHOLE);
            #[expect(clippy::cast_possible_truncation, reason = "whole, and within what both forms can hold")]
            if let Some(whole) = whole {
                *number = Number::from(whole as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(restore_whole_numbers),
        Value::Object(members) => members.values_mut().for_each(restore_whole_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_operation_has_a_schema() {
        for method in CoreMethod::ALL {
            let name = method.wire_name();
            let schema = OperationSchema::named(name).unwrap_or_else(|| panic!("{name}"));
            let is_stream = matches!(method, CoreMethod::SendStreamingMessage | CoreMethod::SubscribeToTask);
            assert_eq!((schema.method, schema.is_stream), (*method, is_stream), "{name}");
        }
        assert!(OperationSchema::named("GetAgentCard").is_none());
    }

    /// Round-trips requests and results through JSON.
    #[test]
    fn messages_keep_their_content() {
        let check = |name: &str, sent: Value, expected: Value| {
            let bytes = encode_named(name, sent.to_string().as_bytes()).unwrap();
            let descriptor = SCHEMAS.as_ref().unwrap().get_message_by_name(name).unwrap();
            let mut read = serde_json::to_value(DynamicMessage::decode(descriptor, bytes).unwrap()).unwrap();
            restore_whole_numbers(&mut read);
            assert_eq!(read, expected, "{name}");
        };
        let part = |part: Value| json!({"messageId": "m", "role": "ROLE_USER", "parts": [part]});
        let same = |name: &str, value: Value| check(name, value.clone(), value);
        same("lf.a2a.v1.Message", part(json!({"text": "hello", "mediaType": "text/plain"})));
        same("lf.a2a.v1.Message", part(json!({"raw": "AAEC/w==", "filename": "a.bin"})));
        same("lf.a2a.v1.Message", part(json!({"data": {"n": 5, "x": 0.5, "s": [null, true, "t"]}})));
        same("lf.a2a.v1.Message", part(json!({"data": null})));
        same("lf.a2a.v1.Message", part(json!({"data": -3})));
        let status = json!({"state": "TASK_STATE_WORKING", "timestamp": "2026-01-31T09:00:00.250Z"});
        same("lf.a2a.v1.Task", json!({"id": "t", "contextId": "c", "status": status}));
        same("lf.a2a.v1.GetTaskRequest", json!({"id": "t", "historyLength": 0}));
        same(
            "lf.a2a.v1.ListTasksRequest",
            json!({"pageSize": 0, "statusTimestampAfter": "2026-01-31T09:00:00Z"}),
        );
        check("lf.a2a.v1.Message", json!({"messageId": "m", "unknown": {"a": 1}}), json!({"messageId": "m"}));
        check("lf.a2a.v1.SendMessageResponse", json!({"task": {"id": "t"}}), json!({"task": {"id": "t"}}));
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        let schema = OperationSchema::named("GetTask").unwrap();
        for bytes in [&b"\xff"[..], b"\x12\x05ab", b"\x12\x02\xff\xfe"] {
            assert!(schema.read_request(Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
        }
        assert_eq!(schema.read_request(Bytes::new()).unwrap(), json!({}));
    }
}
