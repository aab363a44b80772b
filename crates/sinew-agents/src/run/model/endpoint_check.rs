//! Describes the models of an agent file, and pings them.

use std::time::{Duration, Instant};

use sinew_model::{AnswerForm, Prompt, PromptMessage, TokenPrice, TokenUsage};

use super::ModelAgent;
use super::endpoint::ModelEndpoint;
use crate::clean::ResolvedSecrets;
use crate::template::{Environment, TemplatePiece};

/// Maximum tokens of the answer to a ping.
const PING_TOKENS: u64 = 16;

/// A model of an agent file.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelDescription {
    /// Name in the agent file.
    pub alias: String,
    /// Interface of the provider.
    pub provider: &'static str,
    /// The provider's name of the model.
    pub model: String,
    /// Address of the server; empty for scripts.
    pub url: String,
    /// Environment variable with the key, and whether it is set. `None` if the model has no key.
    pub key: Option<(String, bool)>,
    /// Maximum tokens of prompt and answer together.
    pub context: u64,
    /// Price in USD per million tokens. `None` if the file has no price.
    pub price: Option<TokenPrice>,
    /// Index in `use`, from 0. `None` if only workflows can select it.
    pub place: Option<usize>,
}

/// Answer of a model to a ping.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelPong {
    /// The model's name as the provider reports it; empty if it reports none.
    pub model: String,
    /// Time until the answer was complete.
    pub took: Duration,
    /// Tokens that the provider counted.
    pub usage: TokenUsage,
}

impl ModelAgent {
    fn all_endpoints(&self) -> impl Iterator<Item = (Option<usize>, &ModelEndpoint)> {
        let used = self.endpoints.iter().enumerate().map(|(n, endpoint)| (Some(n), endpoint));
        used.chain(self.others.iter().map(|endpoint| (None, endpoint)))
    }

    pub(crate) fn descriptions(&self, environment: &Environment) -> Vec<ModelDescription> {
        let described = |(place, endpoint): (Option<usize>, &ModelEndpoint)| ModelDescription {
            alias: endpoint.spec.alias.clone(),
            provider: endpoint.spec.provider.as_str(),
            model: endpoint.spec.model.clone(),
            url: endpoint.url.clone(),
            key: endpoint.key.as_ref().and_then(|key| match key.pieces() {
                [TemplatePiece::Env { name, .. }] => Some((name.clone(), environment(name).is_some())),
                _ => None,
            }),
            context: endpoint.spec.context,
            price: endpoint.spec.price,
            place,
        };
        self.all_endpoints().map(described).collect()
    }

    pub(crate) async fn ping(
        &self,
        alias: &str,
        environment: &Environment,
    ) -> Option<Result<ModelPong, String>> {
        let (_, endpoint) = self.all_endpoints().find(|(_, endpoint)| endpoint.spec.alias == alias)?;
        let mut secrets = ResolvedSecrets::default();
        let headers = endpoint.fill_headers(environment, &mut secrets);
        let prompt = Prompt {
            system: Vec::new(),
            tools: Vec::new(),
            must_call: false,
            messages: vec![PromptMessage::User { text: "Say ok.".to_owned() }],
            form: AnswerForm::Free,
            max_output: PING_TOKENS.min(endpoint.spec.max_output),
            cache_key: String::new(),
        };
        let begun = Instant::now();
        let answer = endpoint
            .ask((&prompt, &endpoint.spec), (0, endpoint.total), &headers, &secrets, &mut |_| {})
            .await;
        Some(match answer {
            Ok(turn) => Ok(ModelPong { model: turn.model, took: begun.elapsed(), usage: turn.usage }),
            Err(refusal) => Err(refusal.message),
        })
    }
}
