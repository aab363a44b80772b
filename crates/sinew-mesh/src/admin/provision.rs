//! Provisioning of a mesh: creates its streams, buckets and settings, and reports differences from
//! the required ones.
//!
//! Only this module creates streams. Provisioning can run repeatedly and concurrently: the settings
//! are stored last, under a condition, and a provisioner that loses this race adapts the streams to
//! the stored settings.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, Source, StorageType};
use rand::Rng as _;
use sinew_protocol::Vocabulary;
use sinew_protocol::env::RESULT_KEY;
use sinew_protocol::stream::{FLEET, PLANS, Retention, STREAMS, Stream, bucket, fleet_key};
use sinew_protocol::subject::DEFAULT_SHARDS;

use crate::admin::MeshAdmin;
use crate::error::MeshError;
use crate::layout::MOST_SHARDS;
use crate::store::layout_store::{STREAM_FORMAT, Settings, first_format};

/// Default retention of closed executions.
pub const DEFAULT_RETENTION: Duration = Duration::from_hours(7 * 24);
/// A shorter retention would lose messages in transit.
const SHORTEST_RETENTION: Duration = Duration::from_mins(1);
/// Maximum of JetStream.
const MOST_REPLICAS: usize = 5;
const WHAT: &str = "provision the mesh";

/// Options for provisioning. Absent options keep the current value, or take the default in a new
/// mesh.
#[derive(Clone, Copy, Debug, Default)]
pub struct Provision {
    /// Number of shards, 4 by default; it cannot change later.
    pub shards: Option<NonZeroU32>,
    /// Number of replicas of each stream, 1 by default.
    pub replicas: Option<usize>,
    /// Retention of closed executions and their data, 7 days by default.
    pub retention: Option<Duration>,
    /// Maximum size of one stream in bytes; unlimited by default.
    pub storage_limit: Option<u64>,
    /// Whether a stream keeps events, false by default. If this is turned off later, the stream
    /// remains until an operator deletes it.
    pub keep_events: Option<bool>,
    /// Vocabulary of messages, that of the specification by default.
    pub vocabulary: Option<Vocabulary>,
}

/// Change that provisioning made to one stream or setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The stream's name on the server, or `settings`.
    pub of: String,
    /// Differences that were fixed; empty for a new stream.
    pub differed: Vec<Difference>,
}

/// Difference between a stream and its required configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The stream's name on the server.
    pub stream: String,
    /// Field that differs, as the server names it.
    pub field: &'static str,
    /// Required value.
    pub expected: String,
    /// Value on the server.
    pub found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stream, field, expected, found } = self;
        write!(f, "{stream}: {field} is {found}, must be {expected}")
    }
}

impl MeshAdmin<'_> {
    /// Creates the mesh, or fixes differences; returns the changes.
    ///
    /// The settings are stored last. If a step fails, changed streams get their old configuration
    /// back, so a rejected option leaves the mesh unchanged.
    pub async fn provision(self, options: &Provision) -> Result<Vec<Change>, MeshError> {
        options.check()?;
        let mut changes = Vec::new();
        let mut replaced = Vec::new();
        match self.apply(options, &mut changes, &mut replaced).await {
            Ok(()) => Ok(changes),
            Err(error) => {
                self.restore_configs(replaced).await;
                Err(error)
            }
        }
    }

    /// Creates streams and key, then stores the settings. Adds the old configuration of each
    /// changed stream to `replaced`.
    async fn apply(
        self,
        options: &Provision,
        changes: &mut Vec<Change>,
        replaced: &mut Vec<Config>,
    ) -> Result<(), MeshError> {
        let mut stored = self.settings().await?;
        // Streams of an unfinished provisioning by an older version keep their format: an update
        // cannot change it.
        let journal = self.config_of(&bucket(self.mesh.namespace(), "JOURNAL")).await?;
        let is_older = journal.is_some_and(|journal| journal.deny_delete);
        let format = if is_older { first_format() } else { STREAM_FORMAT };
        loop {
            let settings = options.over(stored.map(|(settings, _)| settings), format);
            if let Some(((have, _), asked)) = stored.zip(options.shards)
                && asked != have.shards
            {
                let (namespace, have, asked) =
                    (self.mesh.namespace().to_owned(), have.shards.get(), asked.get());
                return Err(MeshError::ShardsFixed { namespace, have, asked });
            }
            for wanted in wanted(self.mesh.namespace(), &settings) {
                changes.extend(self.ensure(&wanted, replaced).await?);
            }
            self.make_result_key().await?;
            if stored.is_some_and(|(have, _)| have == settings) {
                return Ok(());
            }
            let body = serde_json::to_vec(&settings)
                .map_err(|error| MeshError::Refused { what: WHAT, reason: error.to_string() })?;
            let revision = stored.map_or(0, |(_, revision)| revision);
            if self.mesh.put_at(fleet_key::SETTINGS, body.into(), revision).await?.is_some() {
                changes.push(Change { of: "settings".to_owned(), differed: Vec::new() });
                return Ok(());
            }
            // Another provisioner stored settings first; adapt the streams to those.
            stored = self.settings().await?;
        }
    }

    /// Stores a new executors' key, unless the bucket has a key or the environment names one.
    async fn make_result_key(self) -> Result<(), MeshError> {
        if std::env::var_os(RESULT_KEY).is_some_and(|key| !key.is_empty()) {
            return Ok(());
        }
        let secret: [u8; 32] = rand::rng().random();
        let key = data_encoding::HEXLOWER.encode(&secret);
        self.mesh.put_at(fleet_key::RESULT_KEY, key.into(), 0).await.map(drop)
    }

    /// Restores the old configuration of streams, the last changed first.
    async fn restore_configs(self, replaced: Vec<Config>) {
        for config in replaced.into_iter().rev() {
            let call = format!("$JS.API.STREAM.UPDATE.{}", config.name);
            let restored =
                self.mesh.permitted(&call, self.mesh.jetstream().update_stream(&config).into_future()).await;
            let error = match restored {
                Ok(Ok(_)) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            tracing::warn!(
                stream = config.name,
                error,
                "cannot restore the previous configuration of the stream"
            );
        }
    }

    /// Returns all differences between the server and the required configuration.
    pub async fn check(self) -> Result<Vec<Difference>, MeshError> {
        // Read only the public value, not the whole bucket: callers need no access to the executors'
        // key.
        let settings =
            self.mesh.fleet_value(fleet_key::SETTINGS).await?.ok_or_else(|| self.mesh.not_provisioned())?;
        let settings = Settings::read(&settings)?;
        let mut differences = Vec::new();
        for wanted in wanted(self.mesh.namespace(), &settings) {
            match self.config_of(&wanted.name).await? {
                Some(found) => differences.extend(compare(&wanted, &found)),
                None => differences.push(Difference {
                    stream: wanted.name,
                    field: "stream",
                    expected: "there".to_owned(),
                    found: "missing".to_owned(),
                }),
            }
        }
        Ok(differences)
    }

    /// Returns an error if the mesh differs from its required configuration. Executors call this at
    /// startup.
    pub async fn verify(self) -> Result<(), MeshError> {
        let differences = self.check().await?;
        if differences.is_empty() {
            return Ok(());
        }
        let differences: Vec<_> = differences.iter().map(ToString::to_string).collect();
        Err(MeshError::Differs {
            namespace: self.mesh.namespace().to_owned(),
            differences: differences.join("; "),
        })
    }

    /// Reads the settings from the bucket's leader, with their revision.
    async fn settings(self) -> Result<Option<(Settings, u64)>, MeshError> {
        if self.config_of(&self.mesh.fleet_stream()).await?.is_none() {
            return Ok(None);
        }
        match self.mesh.last(&self.mesh.fleet_stream(), &self.mesh.fleet_subject(fleet_key::SETTINGS)).await?
        {
            Some(message) => Ok(Some((Settings::read(&message.payload)?, message.sequence))),
            None => Ok(None),
        }
    }

    /// Creates a stream, or fixes differences. Adds the old configuration of a changed stream to
    /// `replaced`.
    async fn ensure(self, wanted: &Config, replaced: &mut Vec<Config>) -> Result<Option<Change>, MeshError> {
        let changed = |differed| Some(Change { of: wanted.name.clone(), differed });
        let found = match self.config_of(&wanted.name).await? {
            Some(found) => Some(found),
            None => match self
                .mesh
                .permitted(
                    &format!("$JS.API.STREAM.CREATE.{}", wanted.name),
                    self.mesh.jetstream().create_stream(wanted.clone()).into_future(),
                )
                .await?
            {
                Ok(_) => return Ok(changed(Vec::new())),
                // Another process created it meanwhile, with other settings.
                Err(error) if is_taken(&error.kind()) => self.config_of(&wanted.name).await?,
                Err(error) => return Err(refused(&wanted.name, &error)),
            },
        };
        let Some(found) = found else {
            return Err(refused(&wanted.name, &"another process removed it"));
        };
        let differed = compare(wanted, &found);
        if differed.is_empty() {
            return Ok(None);
        }
        let (call, update) = (format!("$JS.API.STREAM.UPDATE.{}", wanted.name), adopt(found.clone(), wanted));
        let updated =
            self.mesh.permitted(&call, self.mesh.jetstream().update_stream(&update).into_future()).await?;
        updated.map_err(|error| refused(&wanted.name, &error))?;
        replaced.push(found);
        Ok(changed(differed))
    }

    async fn config_of(self, stream: &str) -> Result<Option<Config>, MeshError> {
        let call = format!("$JS.API.STREAM.INFO.{stream}");
        match self.mesh.permitted(&call, self.mesh.jetstream().get_stream(stream)).await? {
            Ok(stream) => Ok(Some(stream.cached_info().config.clone())),
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                    Ok(None)
                }
                GetStreamErrorKind::JetStream(_) => Err(refused(stream, &error)),
                _ => Err(MeshError::Unreachable { what: WHAT, reason: error.to_string() }),
            },
        }
    }
}

impl Provision {
    fn check(&self) -> Result<(), MeshError> {
        let bad = |setting, reason: String| Err(MeshError::BadSetting { setting, reason });
        if let Some(shards) = self.shards.filter(|shards| shards.get() > MOST_SHARDS) {
            return bad("shards", format!("{shards} shards exceed the limit of {MOST_SHARDS}"));
        }
        if let Some(replicas) = self.replicas.filter(|replicas| !(1..=MOST_REPLICAS).contains(replicas)) {
            return bad("replicas", format!("{replicas} is not between 1 and {MOST_REPLICAS}"));
        }
        if self.retention.is_some_and(|retention| retention < SHORTEST_RETENTION) {
            return bad("retention", format!("it must be at least {} s", SHORTEST_RETENTION.as_secs()));
        }
        if self.storage_limit.is_some_and(|limit| i64::try_from(limit).is_err() || limit == 0) {
            return bad("storage limit", "it is out of range".to_owned());
        }
        Ok(())
    }

    /// Merges these options into the current settings of the mesh.
    fn over(&self, have: Option<Settings>, format: u32) -> Settings {
        Settings {
            version: Settings::VERSION,
            // The stored value takes precedence: shards never change.
            shards: have.map(|have| have.shards).or(self.shards).unwrap_or(DEFAULT_SHARDS),
            replicas: self.replicas.or(have.map(|have| have.replicas)).unwrap_or(1),
            retention: self.retention.map_or_else(
                || have.map_or(DEFAULT_RETENTION.as_secs(), |have| have.retention),
                |retention| retention.as_secs(),
            ),
            storage_limit: self.storage_limit.or(have.and_then(|have| have.storage_limit)),
            keep_events: self.keep_events.or(have.map(|have| have.keep_events)).unwrap_or(false),
            format: have.map_or(format, |have| have.format),
            vocabulary: self.vocabulary.or(have.map(|have| have.vocabulary)).unwrap_or(Vocabulary::Spec),
        }
    }
}

/// The streams of a mesh with these settings.
fn wanted(namespace: &str, settings: &Settings) -> Vec<Config> {
    let mut configs = vec![fleet_config(namespace, settings)];
    let streams = STREAMS.iter().filter(|stream| stream.kind != "EVENTS" || settings.keep_events);
    configs.extend(streams.map(|stream| stream_config(namespace, stream, settings)));
    configs.push(plans_config(namespace, settings));
    configs
}

fn base(name: String, subjects: Vec<String>, purpose: &str, settings: &Settings) -> Config {
    Config {
        name,
        subjects,
        description: Some(purpose.to_owned()),
        num_replicas: settings.replicas,
        storage: StorageType::File,
        retention: RetentionPolicy::Limits,
        max_bytes: settings.storage_limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(-1),
        max_messages: -1,
        max_messages_per_subject: -1,
        metadata: [("owner".to_owned(), "sinew".to_owned())].into(),
        // By default, a full stream rejects new messages and keeps the old ones.
        discard: DiscardPolicy::New,
        ..Config::default()
    }
}

fn stream_config(namespace: &str, stream: &Stream, settings: &Settings) -> Config {
    let source_of_truth = stream.kind == "JOURNAL";
    let replaceable = !stream.write_once && stream.keep != Retention::Always;
    let mirrored = stream.mirrored().map(|kind| bucket(namespace, kind));
    let subjects = if mirrored.is_some() { Vec::new() } else { vec![stream.subjects(namespace)] };
    Config {
        max_messages_per_subject: stream.per_subject,
        discard_new_per_subject: stream.write_once,
        discard: if replaceable { DiscardPolicy::Old } else { DiscardPolicy::New },
        max_age: match stream.keep {
            Retention::Always => Duration::ZERO,
            Retention::For(time) => time,
            Retention::Configured => Duration::from_secs(settings.retention),
            Retention::TwiceConfigured => Duration::from_secs(settings.retention.saturating_mul(2)),
        },
        deny_delete: settings.format == first_format() && (source_of_truth || stream.kind == "HISTORY"),
        // The journal is read at its leader only: a follower may lack the last commit.
        allow_direct: !source_of_truth,
        allow_message_ttl: stream.has_message_ttl(),
        mirror: mirrored.map(|name| Source { name, ..Source::default() }),
        ..base(stream.name(namespace), subjects, stream.purpose, settings)
    }
}

fn fleet_config(namespace: &str, settings: &Settings) -> Config {
    let bucket = bucket(namespace, FLEET);
    Config {
        max_messages_per_subject: 1,
        deny_delete: true,
        // Clients read the number of shards by direct get; they may not read other keys.
        allow_direct: true,
        // Heartbeats of stopped executors expire.
        allow_message_ttl: true,
        max_bytes: -1,
        ..base(
            format!("KV_{bucket}"),
            vec![format!("$KV.{bucket}.>")],
            "executors, owners of shards, and the settings of the mesh",
            settings,
        )
    }
}

fn plans_config(namespace: &str, settings: &Settings) -> Config {
    let bucket = bucket(namespace, PLANS);
    let subjects = vec![format!("$O.{bucket}.C.>"), format!("$O.{bucket}.M.>")];
    Config { allow_direct: true, ..base(format!("OBJ_{bucket}"), subjects, "plans, by digest", settings) }
}

/// Returns the stream settings that the mesh depends on, each with its value as text.
fn traits(config: &Config) -> [(&'static str, String); 20] {
    let limit = |limit: i64| if limit <= 0 { "unlimited".to_owned() } else { limit.to_string() };
    let subjects: BTreeSet<_> = config.subjects.iter().map(String::as_str).collect();
    let age = if config.max_age.is_zero() { "unlimited".to_owned() } else { format!("{:?}", config.max_age) };
    [
        ("subjects", Vec::from_iter(subjects).join(" ")),
        ("retention", format!("{:?}", config.retention).to_lowercase()),
        ("storage", format!("{:?}", config.storage).to_lowercase()),
        ("num_replicas", config.num_replicas.max(1).to_string()),
        ("discard", format!("{:?}", config.discard).to_lowercase()),
        ("discard_new_per_subject", config.discard_new_per_subject.to_string()),
        ("max_msgs", limit(config.max_messages)),
        ("max_msgs_per_subject", limit(config.max_messages_per_subject)),
        ("max_bytes", limit(config.max_bytes)),
        ("max_age", age),
        ("no_ack", config.no_ack.to_string()),
        ("sealed", config.sealed.to_string()),
        ("deny_delete", config.deny_delete.to_string()),
        ("deny_purge", config.deny_purge.to_string()),
        ("allow_rollup_hdrs", config.allow_rollup.to_string()),
        ("allow_direct", config.allow_direct.to_string()),
        ("allow_msg_ttl", config.allow_message_ttl.to_string()),
        ("allow_msg_schedules", config.allow_message_schedules.to_string()),
        ("mirror", config.mirror.as_ref().map_or("none", |mirror| &mirror.name).to_owned()),
        ("sources", config.sources.is_some().to_string()),
    ]
}

fn compare(wanted: &Config, found: &Config) -> Vec<Difference> {
    let pairs = traits(wanted).into_iter().zip(traits(found));
    pairs
        .filter(|((_, expected), (_, found))| expected != found)
        .map(|((field, expected), (_, found))| Difference {
            stream: wanted.name.clone(),
            field,
            expected,
            found,
        })
        .collect()
}

/// Returns the wanted settings, with those that an operator has added: placement, compression, limits of consumers.
fn adopt(found: Config, wanted: &Config) -> Config {
    let wanted = wanted.clone();
    let shortest = |window: Duration| match wanted.max_age {
        Duration::ZERO => window,
        age => window.min(age),
    };
    Config {
        subjects: wanted.subjects,
        retention: wanted.retention,
        storage: wanted.storage,
        num_replicas: wanted.num_replicas,
        discard: wanted.discard,
        discard_new_per_subject: wanted.discard_new_per_subject,
        max_messages: wanted.max_messages,
        max_messages_per_subject: wanted.max_messages_per_subject,
        max_bytes: wanted.max_bytes,
        max_age: wanted.max_age,
        duplicate_window: shortest(found.duplicate_window),
        no_ack: wanted.no_ack,
        sealed: wanted.sealed,
        deny_delete: wanted.deny_delete,
        deny_purge: wanted.deny_purge,
        allow_rollup: wanted.allow_rollup,
        allow_direct: wanted.allow_direct,
        allow_message_ttl: wanted.allow_message_ttl,
        allow_message_schedules: wanted.allow_message_schedules,
        mirror: wanted.mirror,
        sources: wanted.sources,
        ..found
    }
}

fn is_taken(kind: &CreateStreamErrorKind) -> bool {
    matches!(kind, CreateStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NAME_EXIST)
}

fn refused(stream: &str, reason: &dyn fmt::Display) -> MeshError {
    MeshError::Refused { what: WHAT, reason: format!("{stream}: {reason}") }
}
