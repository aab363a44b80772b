//! Broker, mesh and folder of one run.

use std::num::NonZeroU32;
use std::path::PathBuf;

use sinew_executor::client::Client;
use sinew_mesh::Provision;
use tempfile::TempDir;

use crate::brokers::{BrokerOptions, Brokers};
use crate::roles::MeshArgs;
use crate::{Fallible, workflows};

/// Environment of a run.
pub(crate) struct ChaosCluster {
    pub(crate) brokers: Brokers,
    pub(crate) place: MeshArgs,
    pub(crate) client: Client,
    _temporary: Option<TempDir>,
}

impl ChaosCluster {
    /// Starts a cluster with one server, in `folder` or a temporary folder, and deploys both workflows.
    pub(crate) async fn new(folder: Option<PathBuf>, shards: u32, sync_always: bool) -> Fallible<Self> {
        Self::with_brokers(folder, shards, BrokerOptions::one(sync_always)).await
    }

    /// As [`ChaosCluster::new`], with other brokers.
    pub(crate) async fn with_brokers(
        folder: Option<PathBuf>,
        shards: u32,
        options: BrokerOptions,
    ) -> Fallible<Self> {
        Self::with_users(folder, shards, options, None).await
    }

    /// As [`ChaosCluster::with_brokers`], with configured permissions and a common password.
    pub(crate) async fn with_users(
        folder: Option<PathBuf>,
        shards: u32,
        options: BrokerOptions,
        users: Option<(String, String)>,
    ) -> Fallible<Self> {
        let temporary = folder.is_none().then(tempfile::tempdir).transpose()?;
        let folder = folder.or_else(|| temporary.as_ref().map(|folder| folder.path().to_owned()));
        let folder = folder.unwrap_or_default();
        if folder.join("ledger.jsonl").exists() {
            return Err(format!("{} holds another run", folder.display()).into());
        }
        std::fs::create_dir_all(&folder)?;
        let (rights, password) = users.unzip();
        let brokers = Brokers::start(folder.join("nats"), options, rights).await?;
        let place = MeshArgs { url: brokers.url(), namespace: "chaos".to_owned(), folder, password };
        let mesh = place.connect("chaos").await?;
        let shards = NonZeroU32::new(shards);
        mesh.admin()
            .provision(&Provision { shards, replicas: Some(options.servers), ..Provision::default() })
            .await?;
        workflows::deploy(&mesh).await?;
        let client = Client::new(mesh, workflows::adapters).await?;
        Ok(Self { brokers, place, client, _temporary: temporary })
    }
}
