//! An agent: its name, schemas, settings and handler.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sinew_protocol::a2a::AgentSkill;
use sinew_protocol::card::{AgentKind, Announcement, Delivery};
use sinew_protocol::catalogue::Catalogue;
use sinew_protocol::mcp_offer::McpOffer;
use sinew_source::{Schema, SchemaCache};

use crate::context::Context;
use crate::error::AgentError;
use crate::failure::Failure;
use crate::handler::{self, Handler};
use crate::handler_pace::HandlerPace;
use crate::task_figures::TaskFigures;

/// Default limit of concurrent tasks.
const CONCURRENCY: usize = 16;
/// Default time limit of a task without a deadline.
const TIMEOUT: Duration = Duration::from_hours(1);
/// Default grace time for tasks in progress at shutdown.
const GRACE: Duration = Duration::from_secs(30);
/// Additional attempts of a language model to write a usable result.
const MODEL_RETRIES: u32 = 2;

/// An agent that is ready to be served.
#[derive(Clone)]
pub struct Agent {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) version: String,
    pub(crate) build: Option<String>,
    pub(crate) skills: Vec<AgentSkill>,
    pub(crate) concurrency: usize,
    pub(crate) delivery: Delivery,
    pub(crate) node_requests: bool,
    pub(crate) offer: McpOffer,
    pub(crate) catalogue: Catalogue,
    pub(crate) timeout: Duration,
    pub(crate) grace: Duration,
    pub(crate) output_retries: u32,
    pub(crate) input_schema: Option<Value>,
    pub(crate) output_schema: Option<Value>,
    pub(crate) handler: Handler,
}

impl Agent {
    /// Creates an agent with Rust types as input and output; its card contains their schemas.
    pub fn new<I, O, F, Fut>(name: impl Into<String>, handler: F) -> Self
    where
        I: DeserializeOwned + JsonSchema,
        O: Serialize + JsonSchema,
        F: Fn(I, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
    {
        let input = input_schema_of::<I>();
        let settings = SchemaSettings::draft2020_12().for_serialize();
        let output = settings.into_generator().into_root_schema_for::<O>().to_value();
        Self::of(name.into(), Some(input), Some(output), handler::typed(handler))
    }

    /// Creates an agent with JSON values, for schemas that are only known at run time.
    pub fn dynamic<F, Fut>(
        name: impl Into<String>,
        input_schema: Option<Value>,
        output_schema: Option<Value>,
        handler: F,
    ) -> Self
    where
        F: Fn(Value, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Value, Failure>> + Send + 'static,
    {
        Self::of(name.into(), input_schema, output_schema, handler::dynamic(handler))
    }

    /// Creates an agent around a language model: the handler returns the model's last message,
    /// whose marker (`«result:artifact=NAME status=success»`) names an artifact of this task as the
    /// output. If the marker is unusable, or the output violates its schema, the handler is called
    /// again up to twice with [`Context::feedback`].
    pub fn model<F, Fut>(
        name: impl Into<String>,
        input_schema: Option<Value>,
        output_schema: Option<Value>,
        handler: F,
    ) -> Self
    where
        F: Fn(Value, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, Failure>> + Send + 'static,
    {
        let agent = Self::of(name.into(), input_schema, output_schema, handler::model(handler));
        agent.output_retries(MODEL_RETRIES)
    }

    fn of(name: String, input_schema: Option<Value>, output_schema: Option<Value>, handler: Handler) -> Self {
        Self {
            name,
            description: String::new(),
            version: "1.0.0".to_owned(),
            build: None,
            skills: Vec::new(),
            concurrency: CONCURRENCY,
            delivery: Delivery::Queue,
            node_requests: true,
            offer: McpOffer::default(),
            catalogue: Catalogue::default(),
            timeout: TIMEOUT,
            grace: GRACE,
            output_retries: 0,
            input_schema,
            output_schema,
            handler,
        }
    }

    /// Sets the purpose of the agent, for people and models.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }

    /// Sets the version of the agent.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Sets the build of the agent, such as a commit: results name it next to the version, so that
    /// records show which build answered.
    #[must_use]
    pub fn build(mut self, build: impl Into<String>) -> Self {
        self.build = Some(build.into());
        self
    }

    /// Adds a skill to its card.
    #[must_use]
    pub fn skill(mut self, id: impl Into<String>, description: impl Into<String>) -> Self {
        let id = id.into();
        self.skills.push(AgentSkill {
            name: id.clone(),
            id,
            description: description.into(),
            tags: vec!["agent".to_owned()],
            examples: None,
            input_modes: None,
            output_modes: None,
            security_requirements: None,
        });
        self
    }

    /// Adds a skill to its card, in A2A's format.
    #[must_use]
    pub fn a2a_skill(mut self, skill: AgentSkill) -> Self {
        self.skills.push(skill);
        self
    }

    /// Sets the limit of concurrent tasks, over all endpoints; at least one.
    #[must_use]
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = tasks.clamp(1, tokio::sync::Semaphore::MAX_PERMITS);
        self
    }

    /// Sets how executors deliver tasks: through its queue (the default) or directly.
    #[must_use]
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// Sets whether executors may send tasks in the short form (the default), or only through A2A.
    #[must_use]
    pub fn node_requests(mut self, taken: bool) -> Self {
        self.node_requests = taken;
        self
    }

    /// Sets the attributes by which people and models find the agent. An invalid attribute fails when
    /// the agent is served; see [`Catalogue::mistake`].
    #[must_use]
    pub fn catalogue(mut self, catalogue: Catalogue) -> Self {
        self.catalogue = catalogue;
        self
    }

    /// Sets the offer to hosts of the Model Context Protocol: a tool (the default), a prompt or a resource.
    #[must_use]
    pub fn offer(mut self, offer: McpOffer) -> Self {
        self.offer = offer;
        self
    }

    /// Sets the time limit of a task; its own deadline may be earlier.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the grace time for tasks in progress at shutdown, before other processes take them
    /// over.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets how often the handler is called again when its output violates the schema.
    #[must_use]
    pub fn output_retries(mut self, retries: u32) -> Self {
        self.output_retries = retries;
        self
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the content of the agent's card.
    pub fn announcement(&self) -> Announcement {
        Announcement {
            name: self.name.clone(),
            description: self.description.clone(),
            version: self.version.clone(),
            kind: AgentKind::Agent,
            input_schema: self.input_schema.clone(),
            output_schema: self.output_schema.clone(),
            skills: self.skills.clone(),
            visualisation: None,
            delivery: self.delivery,
            node_requests: self.node_requests,
            offer: self.offer.clone(),
            catalogue: self.catalogue.clone(),
        }
    }

    /// Compiles the agent's schemas; fails if the agent cannot be served.
    pub(crate) fn compiled(self) -> Result<CompiledAgent, AgentError> {
        if self.name.is_empty() || self.name.len() > 255 || self.name.chars().any(char::is_control) {
            return Err(AgentError::Name(crate::failure::short(&self.name, 64)));
        }
        let compile = |which, schema: &Option<Value>| {
            let compiled = schema.as_ref().map(Schema::compile).transpose();
            compiled.map_err(|reason| AgentError::Schema { agent: self.name.clone(), which, reason })
        };
        let input = compile("input", &self.input_schema)?;
        let output = compile("output", &self.output_schema)?;
        Ok(CompiledAgent {
            input,
            output,
            schemas: SchemaCache::default(),
            figures: Arc::default(),
            pace: Arc::default(),
            agent: self,
        })
    }
}

/// Returns the JSON Schema of values that a type is deserialized from.
pub(crate) fn input_schema_of<I: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<I>().to_value()
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("name", &self.name).finish_non_exhaustive()
    }
}

/// An agent whose schemas are usable.
pub(crate) struct CompiledAgent {
    pub(crate) agent: Agent,
    pub(crate) input: Option<Schema>,
    pub(crate) output: Option<Schema>,
    /// Schemas in requests.
    pub(crate) schemas: SchemaCache,
    pub(crate) figures: Arc<TaskFigures>,
    pub(crate) pace: Arc<HandlerPace>,
}
