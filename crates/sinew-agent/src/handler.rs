//! Handlers of any type in a common form.

use std::future::{Future, ready};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sinew_protocol::Fault;

use crate::context::Context;
use crate::failure::{BAD_INPUT, BAD_OUTPUT, Failure, mistyped};

/// Return value of a handler.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HandlerOutput {
    /// The output itself.
    Value(Value),
    /// A language model's last message, which names the output.
    Text(String),
}

/// A handler in its common form.
pub(crate) type Handler = Arc<dyn Fn(Value, Context) -> HandlerCall + Send + Sync>;

/// A call of a handler.
pub(crate) type HandlerCall = BoxFuture<'static, Result<HandlerOutput, Fault>>;

/// Wraps a function with typed input and output.
pub(crate) fn typed<I, O, F, Fut>(handler: F) -> Handler
where
    I: DeserializeOwned,
    O: Serialize,
    F: Fn(I, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, Failure>> + Send + 'static,
{
    Arc::new(move |input, context| match serde_json::from_value(input) {
        Err(error) => ready(Err(mistyped(BAD_INPUT, "input", &error))).boxed(),
        Ok(input) => handler(input, context)
            .map(|answer| {
                let output = answer.map_err(Failure::into_fault)?;
                let value =
                    serde_json::to_value(output).map_err(|error| mistyped(BAD_OUTPUT, "output", &error))?;
                Ok(HandlerOutput::Value(value))
            })
            .boxed(),
    })
}

/// Wraps a function with JSON values.
pub(crate) fn dynamic<F, Fut>(handler: F) -> Handler
where
    F: Fn(Value, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Value, Failure>> + Send + 'static,
{
    Arc::new(move |input, context| {
        handler(input, context)
            .map(|said| said.map(HandlerOutput::Value).map_err(Failure::into_fault))
            .boxed()
    })
}

/// Wraps a function that returns a language model's message.
pub(crate) fn model<F, Fut>(handler: F) -> Handler
where
    F: Fn(Value, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<String, Failure>> + Send + 'static,
{
    Arc::new(move |input, context| {
        handler(input, context).map(|said| said.map(HandlerOutput::Text).map_err(Failure::into_fault)).boxed()
    })
}
