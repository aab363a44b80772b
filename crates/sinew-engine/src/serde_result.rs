//! `Result<Arc<Reply>, Fault>` as `{"ok": …}` or `{"fault": …}`.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sinew_protocol::Fault;

use crate::ask::TaskReply;

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Out<'a> {
    Ok(&'a TaskReply),
    Fault(&'a Fault),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum In {
    Ok(TaskReply),
    Fault(Fault),
}

pub(crate) fn serialize<S: Serializer>(
    result: &Result<Arc<TaskReply>, Fault>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match result {
        Ok(reply) => Out::Ok(reply),
        Err(fault) => Out::Fault(fault),
    }
    .serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Result<Arc<TaskReply>, Fault>, D::Error> {
    Ok(match In::deserialize(deserializer)? {
        In::Ok(reply) => Ok(Arc::new(reply)),
        In::Fault(fault) => Err(fault),
    })
}
