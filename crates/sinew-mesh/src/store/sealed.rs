//! Objects of the artifact stream: bytes in encrypted pieces that only holders of their key can
//! find and decrypt.
//!
//! Every user that reads or writes artifacts can request any subject of the stream. So the subject
//! of each piece and its encryption key are derived from the key of the object, which is part of
//! the object's address. A subject accepts one message: stored pieces are never replaced, and a
//! subject that is unknown before its piece is stored cannot be occupied.

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sinew_protocol::artifact::{BadArtifact, ObjectKey};
use sinew_protocol::stream::{ARTIFACTS, bucket};
use sinew_protocol::{ExecutionId, Subject};
use tokio::time::{Duration, sleep};

use crate::store::object::{LARGEST_OBJECT, StoredObject, digest_of};
use crate::stream::pull::pause;
use crate::stream::send::PutOutcome;
use crate::{Mesh, MeshError};

/// Bytes of one piece before encryption.
const PIECE_BYTES: usize = 128 << 10;
/// Bytes at the beginning of the first piece: the size of the object.
const SIZE_BYTES: usize = 8;
/// Concurrent writes or reads of pieces.
const WINDOW: usize = 8;
/// Attempts to read a missing piece from a cluster: a replica may lag.
const COPY_READS: u32 = 7;
/// Longest wait between two attempts.
const COPY_PAUSE: Duration = Duration::from_millis(400);

/// An object, identified by its id, which starts with its execution, and its key.
#[derive(Clone, Debug)]
pub(crate) struct ObjectLocation<'a> {
    pub(crate) execution: &'a ExecutionId,
    pub(crate) id: String,
    pub(crate) key: ObjectKey,
}

impl<'a> ObjectLocation<'a> {
    /// Parses a reference written by [`ObjectLocation::reference`].
    pub(crate) fn named(execution: &'a ExecutionId, reference: &str) -> Result<Self, BadArtifact> {
        let no_key = || BadArtifact::NoKey(reference.chars().take(200).collect());
        let (id, key) = reference.rsplit_once('.').ok_or_else(no_key)?;
        Ok(Self { execution, id: id.to_owned(), key: key.parse().map_err(|_| no_key())? })
    }

    /// Returns id and key, for a message that references the object.
    pub(crate) fn reference(&self) -> String {
        format!("{}.{}", self.id, self.key)
    }

    fn subject(&self, nth: usize) -> Subject {
        self.key.piece(self.execution, nth as u64)
    }

    fn seal(&self) -> Result<LessSafeKey, MeshError> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &self.key.seal());
        key.map(LessSafeKey::new).map_err(|_| MeshError::Malformed {
            what: "the key of an object",
            reason: "its length".to_owned(),
        })
    }
}

/// Uses the number of a piece as its nonce: a key encrypts one object, and each piece once.
fn nonce(nth: usize) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&(nth as u64).to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Returns the number of pieces of an object of this size.
fn piece_count(size: usize) -> usize {
    size.saturating_add(SIZE_BYTES).div_ceil(PIECE_BYTES)
}

/// The sealed objects of a mesh.
#[derive(Clone)]
pub(crate) struct SealedObjects {
    mesh: Mesh,
    /// Name for an object in errors.
    what: &'static str,
}

impl SealedObjects {
    pub(crate) fn new(mesh: &Mesh, what: &'static str) -> Self {
        Self { mesh: mesh.clone(), what }
    }

    /// Returns the location of an object that this process is going to store.
    pub(crate) fn place<'a>(&self, execution: &'a ExecutionId, id: String) -> ObjectLocation<'a> {
        ObjectLocation { execution, key: ObjectKey::derived(self.mesh.object_secret(), &id), id }
    }

    /// Stores bytes. Pieces that an earlier attempt stored are left unchanged.
    pub(crate) async fn put(&self, place: &ObjectLocation<'_>, bytes: &Bytes) -> Result<(), MeshError> {
        if bytes.len() > LARGEST_OBJECT {
            let (size, limit) = (bytes.len() as u64, LARGEST_OBJECT as u64);
            return Err(MeshError::TooLarge { what: self.what, size, limit });
        }
        let seal = place.seal()?;
        let pieces = (0..piece_count(bytes.len())).map(|nth| self.put_piece(place, &seal, nth, bytes));
        futures_util::stream::iter(pieces).buffer_unordered(WINDOW).try_collect().await
    }

    async fn put_piece(
        &self,
        place: &ObjectLocation<'_>,
        seal: &LessSafeKey,
        nth: usize,
        bytes: &Bytes,
    ) -> Result<(), MeshError> {
        // The size precedes the bytes, so each piece is shifted by its length.
        let start = (nth * PIECE_BYTES).saturating_sub(SIZE_BYTES);
        let end = bytes.len().min((nth + 1) * PIECE_BYTES - SIZE_BYTES);
        let mut piece = Vec::with_capacity(PIECE_BYTES + CHACHA20_POLY1305.tag_len());
        if nth == 0 {
            piece.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        }
        piece.extend_from_slice(&bytes[start..end]);
        seal.seal_in_place_append_tag(nonce(nth), Aad::from(place.id.as_bytes()), &mut piece)
            .map_err(|_| self.damaged(place, "a piece cannot be encrypted"))?;
        let headers = async_nats::HeaderMap::new();
        match self.mesh.put_once(&place.subject(nth), headers, piece.into()).await? {
            PutOutcome::New | PutOutcome::Same => Ok(()),
            PutOutcome::Taken => Err(self.damaged(place, "other bytes are stored in place of a piece")),
        }
    }

    /// Reads the bytes of an object up to a size limit.
    pub(crate) async fn get_within(
        &self,
        place: &ObjectLocation<'_>,
        max_bytes: usize,
    ) -> Result<StoredObject, MeshError> {
        let seal = place.seal()?;
        let missing = || MeshError::NotFound { what: self.what, id: place.id.clone() };
        let first = self.piece(place, &seal, 0).await?.ok_or_else(missing)?;
        let (size, first) = first
            .split_first_chunk::<SIZE_BYTES>()
            .ok_or_else(|| self.damaged(place, "its first piece is too short"))?;
        let size = u64::from_be_bytes(*size);
        let expected = usize::try_from(size).unwrap_or(usize::MAX);
        if expected > max_bytes {
            return Err(MeshError::TooLarge { what: self.what, size, limit: max_bytes as u64 });
        }
        let mut bytes = Vec::with_capacity(expected);
        bytes.extend_from_slice(first);
        let rest = (1..piece_count(expected)).map(|nth| self.piece(place, &seal, nth));
        let mut rest = futures_util::stream::iter(rest).buffered(WINDOW);
        while let Some(piece) = rest.next().await {
            bytes.extend_from_slice(&piece?.ok_or_else(|| self.damaged(place, "a piece is missing"))?);
            if bytes.len() > expected {
                break;
            }
        }
        if bytes.len() != expected {
            return Err(self.damaged(place, "the size of its pieces differs from its size"));
        }
        let bytes = Bytes::from(bytes);
        let sha256 = digest_of(&bytes).await;
        Ok(StoredObject { bytes, sha256 })
    }

    /// Reads and decrypts one piece.
    async fn piece(
        &self,
        place: &ObjectLocation<'_>,
        seal: &LessSafeKey,
        nth: usize,
    ) -> Result<Option<Vec<u8>>, MeshError> {
        let name = self.mesh.subject(&place.subject(nth));
        let stream = bucket(self.mesh.namespace(), ARTIFACTS);
        let mut reads = 0;
        let stored = loop {
            reads += 1;
            match self.mesh.stored(&stream, &name).await? {
                Some(stored) => break stored,
                None if reads < COPY_READS && self.mesh.layout().await?.replicas > 1 => {
                    sleep(pause(reads, COPY_PAUSE)).await;
                }
                None => return Ok(None),
            }
        };
        let mut piece = stored.payload.to_vec();
        let opened = seal.open_in_place(nonce(nth), Aad::from(place.id.as_bytes()), &mut piece);
        let length = opened.map_err(|_| self.damaged(place, "a piece differs from the stored one"))?.len();
        piece.truncate(length);
        Ok(Some(piece))
    }

    fn damaged(&self, place: &ObjectLocation<'_>, reason: &str) -> MeshError {
        MeshError::Damaged { what: self.what, id: place.id.clone(), reason: reason.to_owned() }
    }
}
