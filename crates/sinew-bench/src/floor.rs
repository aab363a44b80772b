//! The floor: bare loops over the same server that send only the messages that each engine needs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::try_join_all;
use futures_util::{StreamExt as _, TryStreamExt as _};
use sinew_mesh::HeaderMap;
use sinew_mesh::async_nats::jetstream::{self, Context, consumer, stream};
use sinew_mesh::async_nats::{Client, HeaderValue, header};
use tokio::sync::{mpsc, oneshot};

use crate::child::{BODY, BenchProcessError, broken, ready};
use crate::order::{FloorKind, MeasuredTime};

/// Subject of the bare agent.
const ECHO: &str = "floor.echo";
const JOURNAL: &str = "floor.journal";
const TASKS: &str = "floor.task";
const RESULTS: &str = "floor.result";
/// Sequential steps of a chain.
const STEPS: usize = 3;
/// Messages per pull request.
const BATCH: usize = 512;

/// Runs the agent process of the floor: answers requests and queued tasks until the connection closes.
pub(crate) async fn echo(client: Client) -> Result<(), BenchProcessError> {
    let jetstream = jetstream::new(client.clone());
    for (name, subject, retention) in [
        ("FLOOR_JOURNAL", JOURNAL.to_owned(), stream::RetentionPolicy::Limits),
        ("FLOOR_TASKS", format!("{TASKS}.>"), stream::RetentionPolicy::Limits),
        ("FLOOR_RESULTS", format!("{RESULTS}.>"), stream::RetentionPolicy::Limits),
    ] {
        let config = stream::Config {
            name: name.to_owned(),
            subjects: vec![subject],
            retention,
            ..stream::Config::default()
        };
        jetstream.get_or_create_stream(config).await.map_err(broken)?;
    }
    let mut calls = client.subscribe(ECHO).await.map_err(broken)?;
    let config = consumer::pull::Config { durable_name: Some("echo".to_owned()), ..Default::default() };
    let queue = jetstream.create_consumer_on_stream(config, "FLOOR_TASKS").await.map_err(broken)?;
    let mut tasks = queue.stream().max_messages_per_batch(BATCH).messages().await.map_err(broken)?;
    ready();
    loop {
        tokio::select! {
            call = calls.next() => {
                let Some(call) = call else { return Ok(()) };
                if let Some(reply) = call.reply {
                    client.publish(reply, call.payload).await.map_err(broken)?;
                }
            }
            task = tasks.next() => {
                let task = task.ok_or("the queue ended")?.map_err(broken)?;
                let jetstream = jetstream.clone();
                tokio::spawn(async move {
                    let id = task.subject.rsplit('.').next().unwrap_or_default().to_owned();
                    jetstream.publish(format!("{RESULTS}.{id}"), task.payload.clone()).await.map_err(broken)?
                        .await.map_err(broken)?;
                    task.double_ack().await.map_err(broken)
                });
            }
        }
    }
}

/// The executor side of the floor.
pub(crate) struct FloorLoops {
    client: Client,
    jetstream: Context,
    group: mpsc::UnboundedSender<(Bytes, oneshot::Sender<()>)>,
    answers: Arc<Mutex<HashMap<u64, oneshot::Sender<()>>>>,
    next: AtomicU64,
}

impl FloorLoops {
    pub(crate) async fn new(client: Client) -> Result<Self, BenchProcessError> {
        let jetstream = jetstream::new(client.clone());
        let (group, pending) = mpsc::unbounded_channel();
        tokio::spawn(write(jetstream.clone(), pending));
        let answers: Arc<Mutex<HashMap<u64, oneshot::Sender<()>>>> = Arc::default();
        let config = consumer::pull::Config { ack_policy: consumer::AckPolicy::None, ..Default::default() };
        let results = jetstream.create_consumer_on_stream(config, "FLOOR_RESULTS").await.map_err(broken)?;
        let mut results = results.stream().max_messages_per_batch(BATCH).messages().await.map_err(broken)?;
        let waiting = Arc::clone(&answers);
        tokio::spawn(async move {
            while let Some(Ok(result)) = results.next().await {
                let id = result.subject.rsplit('.').next().and_then(|id| id.parse::<u64>().ok());
                let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(waiter) = id.and_then(|id| waiting.remove(&id)) {
                    let _ = waiter.send(());
                }
            }
        });
        // Avoid subjects of earlier rounds, which the stream contains.
        let next = AtomicU64::new(uuid::Uuid::now_v7().as_u128() as u64 & 0x7fff_ffff_ffff_0000);
        Ok(Self { client, jetstream, group, answers, next })
    }

    /// Runs `count` operations with `at_once` in flight.
    pub(crate) async fn measure(
        &self,
        kind: FloorKind,
        wide: usize,
        count: usize,
        at_once: usize,
    ) -> Result<MeasuredTime, BenchProcessError> {
        let began = Instant::now();
        let each: Vec<f64> = futures_util::stream::iter((0..count).map(|_| async move {
            let began = Instant::now();
            self.one(kind, wide).await?;
            Ok::<_, BenchProcessError>(began.elapsed().as_secs_f64() * 1e6)
        }))
        .buffer_unordered(at_once)
        .try_collect()
        .await?;
        Ok(MeasuredTime::of(began.elapsed().as_secs_f64(), each))
    }

    async fn one(&self, kind: FloorKind, wide: usize) -> Result<(), BenchProcessError> {
        self.append(kind).await?;
        if wide == 1 {
            for _ in 0..STEPS {
                self.step(kind).await?;
            }
            return Ok(());
        }
        try_join_all((0..wide).map(|_| self.step(kind))).await.map(drop)
    }

    async fn step(&self, kind: FloorKind) -> Result<(), BenchProcessError> {
        if kind == FloorKind::Queued {
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let (sender, answer) = oneshot::channel();
            self.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
            let sent = self.jetstream.publish(format!("{TASKS}.{id}"), Bytes::from_static(BODY)).await;
            sent.map_err(broken)?.await.map_err(broken)?;
            answer.await.map_err(broken)?;
        } else {
            self.client.request(ECHO, Bytes::from_static(BODY)).await.map_err(broken)?;
        }
        self.append(kind).await
    }

    async fn append(&self, kind: FloorKind) -> Result<(), BenchProcessError> {
        let body = Bytes::from_static(BODY);
        match kind {
            FloorKind::Nothing => Ok(()),
            FloorKind::Append | FloorKind::Queued => {
                let sent = self.jetstream.publish(JOURNAL, body).await.map_err(broken)?;
                sent.await.map(drop).map_err(broken)
            }
            FloorKind::Group => {
                let (sender, stored) = oneshot::channel();
                let _ = self.group.send((body, sender));
                stored.await.map_err(broken)
            }
        }
    }
}

/// Runs a writer with group commit: each message contains all pending entries, one message at a time.
async fn write(jetstream: Context, mut pending: mpsc::UnboundedReceiver<(Bytes, oneshot::Sender<()>)>) {
    while let Some((first, waiter)) = pending.recv().await {
        let (mut body, mut waiters) = (Vec::from(first), vec![waiter]);
        while let Ok((more, waiter)) = pending.try_recv() {
            body.extend_from_slice(&more);
            waiters.push(waiter);
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::NATS_EXPECTED_STREAM, HeaderValue::from("FLOOR_JOURNAL"));
        let Ok(sent) = jetstream.publish_with_headers(JOURNAL, headers, body.into()).await else { return };
        if sent.await.is_err() {
            return;
        }
        for waiter in waiters {
            let _ = waiter.send(());
        }
    }
}
