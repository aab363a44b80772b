//! One gRPC call: its bytes become an operation, and the operation's results become messages.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{StatusCode, Version};
use axum::response::{IntoResponse, Response};
use bytes::{Buf as _, BufMut as _, Bytes};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use http_body_util::Full;
use serde_json::Value;
use sinew_protocol::a2a::A2aError;
use sinew_protocol::code;
use sinew_protocol::jsonrpc::raw;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, ServerStreamingService, UnaryService};

use super::is_grpc;
use super::status::status_of;
use crate::a2a_request;
use crate::a2a_schema::OperationSchema;
use crate::access::CallerIdentity;
use crate::cards::AGENT_TENANT;
use crate::http_error::HttpProblem;
use crate::operations::{Endpoint, OperationReply, StreamItem, TaskStream, mesh_failed, short};
use crate::request_body::{BodyError, read_body};
use crate::state::GatewayState;

/// Answers one call of the method with this name.
pub(crate) async fn serve(
    state: Arc<GatewayState>,
    caller: CallerIdentity,
    name: &str,
    request: Request,
) -> Response {
    if !is_grpc(request.headers()) || request.version() < Version::HTTP_2 {
        let text = "expected a gRPC call over HTTP/2 with content type application/grpc";
        return HttpProblem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, code::GATEWAY_REQUEST_WRONG, text)
            .into_response();
    }
    let Some(schema) = OperationSchema::named(name) else {
        return Status::unimplemented(format!("A2A has no operation {:?}", short(name, 64))).into_http();
    };
    let (parts, body) = request.into_parts();
    let body = match read_body(&state.limits, body).await {
        Ok(body) => body,
        Err(BodyError::TooLarge(text)) => {
            return Status::resource_exhausted(text).into_http();
        }
        Err(BodyError::Broken) => {
            return Status::deadline_exceeded("the message is incomplete").into_http();
        }
    };
    let request = axum::http::Request::from_parts(parts.clone(), Full::new(body));
    let limit = state.limits.body_bytes;
    let is_stream = schema.is_stream;
    let call = OperationService { state, caller, schema, parts: Arc::new(parts) };
    let mut grpc = Grpc::new(BytesCodec).max_decoding_message_size(limit);
    let response =
        if is_stream { grpc.server_streaming(call, request).await } else { grpc.unary(call, request).await };
    a2a_request::with_a2a_headers(response.map(Body::new))
}

/// One operation for one caller, as tonic calls it.
#[derive(Clone)]
struct OperationService {
    state: Arc<GatewayState>,
    caller: CallerIdentity,
    schema: OperationSchema,
    parts: Arc<Parts>,
}

impl OperationService {
    async fn perform(&self, message: Bytes) -> Result<OperationReply, A2aError> {
        a2a_request::check_version(&self.parts)?;
        let mut params = self.schema.read_request(message)?;
        let endpoint = self.endpoint(&mut params).await?;
        let call = (self.schema.method, &*raw(&params));
        a2a_request::perform(&self.state, &self.caller, &self.parts, endpoint, call).await
    }

    /// Takes the endpoint from the member `tenant`.
    async fn endpoint(&self, params: &mut Value) -> Result<Endpoint, A2aError> {
        let tenant = params.get("tenant").and_then(Value::as_str).unwrap_or_default();
        let Some(name) = tenant.strip_prefix(AGENT_TENANT) else { return Ok(Endpoint::Mesh) };
        let operations = self.state.operations_of(&self.caller);
        let found = operations.find(|all| all.has_card(name).then_some(())).await;
        if found.map_err(|error| mesh_failed(&error))?.is_none() {
            let text = format!("tenant: workflow or agent {:?} not found", short(name, 64));
            return Err(A2aError::invalid_params(text));
        }
        let endpoint = Endpoint::Agent(name.to_owned());
        if let Some(params) = params.as_object_mut() {
            params.remove("tenant");
        }
        Ok(endpoint)
    }

    async fn answer(self, message: Bytes) -> Result<tonic::Response<Bytes>, Status> {
        let word = |json: &str| self.schema.word_result(json.as_bytes()).map_err(|error| status_of(&error));
        match self.perform(message).await.map_err(|error| status_of(&error))? {
            OperationReply::Value(value) => Ok(tonic::Response::new(word(value.get())?)),
            OperationReply::Incomplete { value, unheard } => {
                let mut response = tonic::Response::new(word(value.get())?);
                if let Ok(names) = a2a_request::unheard_names(&unheard).parse() {
                    response.metadata_mut().insert(a2a_request::UNHEARD_HEADER, names);
                }
                Ok(response)
            }
            OperationReply::Stream(_) => Err(Status::internal("the operation returned a stream")),
        }
    }

    async fn open(self, message: Bytes) -> Result<tonic::Response<MessageStream>, Status> {
        let OperationReply::Stream(items) = self.perform(message).await.map_err(|error| status_of(&error))?
        else {
            return Err(Status::internal("the operation did not return a stream"));
        };
        let Self { state, schema, .. } = self;
        let open = OpenCall { state, schema, items };
        let messages = stream::unfold(Some(open), |open| async move {
            let mut open = open?;
            let message = open.next().await?;
            let goes_on = message.is_ok();
            Some((message, goes_on.then_some(open)))
        });
        Ok(tonic::Response::new(Box::pin(messages)))
    }
}

/// State of one stream.
struct OpenCall {
    state: Arc<GatewayState>,
    schema: OperationSchema,
    items: TaskStream,
}

impl OpenCall {
    /// Returns the next message, or `None` after the last. No message follows a status.
    async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        let item = tokio::select! {
            biased;
            item = self.items.next() => item?,
            () = self.state.draining.cancelled() => {
                return Some(Err(Status::unavailable("the gateway is shutting down; subscribe to the task again")));
            }
        };
        Some(match item {
            StreamItem::Event { body, .. } => {
                self.schema.word_result(&body).map_err(|error| status_of(&error))
            }
            StreamItem::Failed(error) => Err(status_of(&error)),
        })
    }
}

type MessageStream = BoxStream<'static, Result<Bytes, Status>>;

impl UnaryService<Bytes> for OperationService {
    type Response = Bytes;
    type Future = BoxFuture<'static, Result<tonic::Response<Bytes>, Status>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        Box::pin(self.clone().answer(request.into_inner()))
    }
}

impl ServerStreamingService<Bytes> for OperationService {
    type Response = Bytes;
    type ResponseStream = MessageStream;
    type Future = BoxFuture<'static, Result<tonic::Response<MessageStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        Box::pin(self.clone().open(request.into_inner()))
    }
}

/// Passes messages as bytes, which the schema decodes.
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(bytes.copy_to_bytes(bytes.remaining())))
    }
}
