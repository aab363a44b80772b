//! A client of A2A for each binding, with one form of results and refusals.

use std::future::Future;
use std::sync::LazyLock;

use bytes::{Buf as _, BufMut as _, Bytes};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use reqwest::Method;
use serde_json::{Value, json};
use sinew_mesh::{HeaderMap, Mesh};
use sinew_protocol::{ActivationKey, ExecutionId, TaskId, Token};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::support::{EventSource, GatewayWorld, PATIENCE};

/// A binding of A2A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskBinding {
    JsonRpc,
    Rest,
    Grpc,
    Nats,
}

impl TaskBinding {
    pub(crate) const ALL: [Self; 4] = [Self::JsonRpc, Self::Rest, Self::Grpc, Self::Nats];
}

/// Result of an operation, or the reason of its refusal.
type CallResult = Result<Value, String>;

/// A client of one binding.
pub(crate) struct BindingClient {
    binding: TaskBinding,
    http: reqwest::Client,
    base: String,
    grpc: GrpcClient,
    mesh: Mesh,
}

impl BindingClient {
    /// A client of each binding, all for the same caller.
    pub(crate) async fn all(world: &GatewayWorld) -> Vec<Self> {
        let mesh = world.connect("gateway").await;
        let grpc = GrpcClient::connect(&world.base).await;
        let client = |binding| Self {
            binding,
            http: world.http.clone(),
            base: world.base.clone(),
            grpc: grpc.clone(),
            mesh: mesh.clone(),
        };
        TaskBinding::ALL.map(client).into()
    }

    pub(crate) fn binding(&self) -> TaskBinding {
        self.binding
    }

    /// An operation with one result.
    pub(crate) async fn call(&self, agent: &str, method: &str, params: &Value) -> CallResult {
        match self.binding {
            TaskBinding::JsonRpc => {
                rpc_result(&self.post_rpc(agent, method, params).await.json().await.unwrap())
            }
            TaskBinding::Rest => {
                let answer = self.rest(agent, method, params).send().await.unwrap();
                let (is_right, body) = (answer.status().is_success(), answer.json().await.unwrap());
                if is_right { Ok(body) } else { Err(rest_reason(&body)) }
            }
            TaskBinding::Grpc => {
                self.grpc.call(agent, method, params).await.map_err(|status| grpc_reason(&status))
            }
            TaskBinding::Nats => self.ask(agent, method, params).await,
        }
    }

    /// An operation with a stream: all its events. `meanwhile` is done after the first.
    pub(crate) async fn stream(
        &self,
        agent: &str,
        method: &str,
        params: &Value,
        meanwhile: impl Future<Output = ()>,
    ) -> Result<Vec<Value>, String> {
        match self.binding {
            TaskBinding::JsonRpc | TaskBinding::Rest => {
                let answer = match self.binding {
                    TaskBinding::JsonRpc => self.post_rpc(agent, method, params).await,
                    _ => self.rest(agent, method, params).send().await.unwrap(),
                };
                if answer.headers()["content-type"] != "text/event-stream" {
                    let body: Value = answer.json().await.unwrap();
                    return Err(match self.binding {
                        TaskBinding::JsonRpc => rpc_result(&body).unwrap_err(),
                        _ => rest_reason(&body),
                    });
                }
                let mut source = EventSource::of(answer);
                let first = source.next().await.unwrap().1;
                meanwhile.await;
                let rest = source.all().await.into_iter().map(|(_, event)| event);
                let events = std::iter::once(first).chain(rest);
                match self.binding {
                    TaskBinding::JsonRpc => events.map(|event| rpc_result(&event)).collect(),
                    _ => Ok(events.collect()),
                }
            }
            TaskBinding::Grpc => {
                let streamed = self.grpc.stream(agent, method, params, meanwhile).await;
                streamed.map_err(|status| grpc_reason(&status))
            }
            TaskBinding::Nats => self.listen(agent, method, params, meanwhile).await,
        }
    }

    async fn post_rpc(&self, agent: &str, method: &str, params: &Value) -> reqwest::Response {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let request = self.http.post(format!("{}/agents/{agent}", self.base)).header("A2A-Version", "1.0");
        request.json(&body).send().await.unwrap()
    }

    fn rest(&self, agent: &str, method: &str, params: &Value) -> reqwest::RequestBuilder {
        let named = |name: &str| {
            utf8_percent_encode(params[name].as_str().unwrap_or_default(), NON_ALPHANUMERIC).to_string()
        };
        let id = || named("id");
        let configs = || format!("tasks/{}/pushNotificationConfigs", named("taskId"));
        let (verb, path) = match method {
            "SendMessage" => (Method::POST, "message:send".to_owned()),
            "SendStreamingMessage" => (Method::POST, "message:stream".to_owned()),
            "GetTask" => (Method::GET, format!("tasks/{}", id())),
            "ListTasks" => (Method::GET, "tasks".to_owned()),
            "CancelTask" => (Method::POST, format!("tasks/{}:cancel", id())),
            "SubscribeToTask" => (Method::POST, format!("tasks/{}:subscribe", id())),
            "CreateTaskPushNotificationConfig" => (Method::POST, configs()),
            "GetTaskPushNotificationConfig" => (Method::GET, format!("{}/{}", configs(), id())),
            "ListTaskPushNotificationConfigs" => (Method::GET, configs()),
            "DeleteTaskPushNotificationConfig" => (Method::DELETE, format!("{}/{}", configs(), id())),
            "GetExtendedAgentCard" => (Method::GET, "extendedAgentCard".to_owned()),
            other => panic!("{other} has no path"),
        };
        let url = format!("{}/agents/{agent}/{path}", self.base);
        if verb == Method::POST {
            return self.http.request(verb, url).header("A2A-Version", "1.0").json(params);
        }
        let members = params.as_object().unwrap().iter();
        let members = members.filter(|(name, _)| !["id", "taskId"].contains(&name.as_str()));
        let pair = |(name, value): (&String, &Value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!("{name}={}", utf8_percent_encode(&text, NON_ALPHANUMERIC))
        };
        let query: Vec<String> = members.map(pair).collect();
        let url = format!("{url}?{}", query.join("&"));
        self.http.request(verb, url).header("A2A-Version", "1.0")
    }

    /// A request of the binding to NATS.
    async fn ask(&self, agent: &str, method: &str, params: &Value) -> CallResult {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let mut headers = HeaderMap::new();
        headers.insert("A2A-Version", "1.0");
        let asked = self.mesh.services().call_rpc(agent, method, headers, body.into(), PATIENCE);
        rpc_result(&serde_json::from_slice(&asked.await.unwrap().body).unwrap())
    }

    /// Section 6 of the binding to NATS: subscribes, asks, and listens until the end of the task.
    async fn listen(
        &self,
        agent: &str,
        method: &str,
        params: &Value,
        meanwhile: impl Future<Output = ()>,
    ) -> Result<Vec<Value>, String> {
        let tasks = self.mesh.tasks();
        let mut feed = if let Some(message) = params["message"]["messageId"].as_str() {
            let execution = ExecutionId::of(self.mesh.namespace(), self.mesh.caller().as_str(), message);
            let activation = ActivationKey::of::<&str>(&execution, Token::of(agent).as_str(), &[], 0);
            let task = TaskId::of(&execution, &activation, 1);
            tasks.watch_progress(Some(&execution), Some(&task)).await.unwrap()
        } else {
            // Ids of another form are refused by the agent, not here.
            let Ok(task) = TaskId::parse(params["id"].as_str().unwrap_or_default()) else {
                return self.ask(agent, method, params).await.map(|event| vec![event]);
            };
            tasks.watch_progress(None, Some(&task)).await.unwrap()
        };
        let first = self.ask(agent, method, params).await?;
        let is_message = first.get("message").is_some();
        let mut events = vec![first];
        meanwhile.await;
        if is_message {
            return Ok(events);
        }
        loop {
            let told = tokio::time::timeout(PATIENCE, feed.next()).await.unwrap().unwrap();
            events.push(serde_json::from_slice(&told.body).unwrap());
            if told.headers.get("A2A-End").is_some() {
                return Ok(events);
            }
        }
    }
}

/// The reasons of errors that carry none, by their code.
fn reason_of(code: &str) -> &str {
    match code {
        "-32602" | "INVALID_ARGUMENT" => "INVALID_PARAMS",
        other => other,
    }
}

/// The reason that A2A gives among typed details.
fn detail_reason(details: &Value) -> Option<String> {
    let mut details = details.as_array()?.iter();
    let found = details.find(|detail| detail["domain"] == "a2a-protocol.org")?;
    Some(found["reason"].as_str()?.to_owned())
}

fn rpc_result(answer: &Value) -> CallResult {
    let Some(error) = answer.get("error") else { return Ok(answer["result"].clone()) };
    Err(detail_reason(&error["data"]).unwrap_or_else(|| reason_of(&error["code"].to_string()).to_owned()))
}

fn rest_reason(body: &Value) -> String {
    let error = &body["error"];
    detail_reason(&error["details"])
        .unwrap_or_else(|| reason_of(error["status"].as_str().unwrap()).to_owned())
}

fn grpc_reason(status: &Status) -> String {
    let details = grpc_details(status);
    let code = match status.code() {
        Code::InvalidArgument => "INVALID_ARGUMENT".to_owned(),
        other => format!("{other:?}"),
    };
    detail_reason(&details).unwrap_or_else(|| reason_of(&code).to_owned())
}

/// The typed details of a status, as JSON.
pub(crate) fn grpc_details(status: &Status) -> Value {
    let status = DynamicMessage::decode(descriptor("google.rpc.Status"), status.details()).unwrap();
    serde_json::to_value(&status).unwrap()["details"].take()
}

static SCHEMAS: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(&include_bytes!(concat!(env!("OUT_DIR"), "/schemas.bin"))[..]).unwrap()
});

fn descriptor(name: &str) -> MessageDescriptor {
    SCHEMAS.get_message_by_name(name).unwrap()
}

/// A client of gRPC that knows the schema, but none of the gateway's code.
#[derive(Clone)]
pub(crate) struct GrpcClient {
    channel: Channel,
    /// Sent with every call.
    pub(crate) metadata: MetadataMap,
}

impl GrpcClient {
    pub(crate) async fn connect(base: &str) -> Self {
        let channel = Endpoint::from_shared(base.to_owned()).unwrap().connect().await.unwrap();
        let mut metadata = MetadataMap::new();
        metadata.insert("a2a-version", "1.0".parse().unwrap());
        Self { channel, metadata }
    }

    fn request(
        &self,
        agent: &str,
        method: &str,
        params: &Value,
    ) -> (Request<Bytes>, MessageDescriptor, String) {
        let service = SCHEMAS.get_service_by_name("lf.a2a.v1.A2AService").unwrap();
        let method = service.methods().find(|found| found.name() == method).unwrap();
        let mut params = params.clone();
        if !agent.is_empty() {
            params["tenant"] = format!("agents/{agent}").into();
        }
        let message: DynamicMessage =
            serde::de::DeserializeSeed::deserialize(method.input(), &params).unwrap();
        let mut request = Request::new(Bytes::from(message.encode_to_vec()));
        *request.metadata_mut() = self.metadata.clone();
        let path = format!("/lf.a2a.v1.A2AService/{}", method.name());
        (request, method.output(), path)
    }

    pub(crate) async fn call(&self, agent: &str, method: &str, params: &Value) -> Result<Value, Status> {
        let (request, output, path) = self.request(agent, method, params);
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let answer = grpc.unary(request, path.parse().unwrap(), BytesCodec).await?;
        Ok(decoded(&output, answer.into_inner()))
    }

    async fn stream(
        &self,
        agent: &str,
        method: &str,
        params: &Value,
        meanwhile: impl Future<Output = ()>,
    ) -> Result<Vec<Value>, Status> {
        let (request, output, path) = self.request(agent, method, params);
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let mut answer =
            grpc.server_streaming(request, path.parse().unwrap(), BytesCodec).await?.into_inner();
        let mut events: Vec<Value> =
            answer.message().await?.into_iter().map(|message| decoded(&output, message)).collect();
        meanwhile.await;
        while let Some(message) = answer.message().await? {
            events.push(decoded(&output, message));
        }
        Ok(events)
    }
}

fn decoded(output: &MessageDescriptor, bytes: Bytes) -> Value {
    let message = DynamicMessage::decode(output.clone(), bytes).unwrap();
    with_whole_numbers(serde_json::to_value(&message).unwrap())
}

/// Protobuf has floating-point numbers only.
fn with_whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 => json!(float as i64),
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(with_whole_numbers).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, member)| (name, with_whole_numbers(member))).collect()
        }
        other => other,
    }
}

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
