//! The signing key of a mesh's gateways: Ed25519, derived from a secret that they share.

use data_encoding::BASE64URL_NOPAD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde_json::{Value, json};
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::artifact::sha256;

use crate::access::shared_secret;

/// Name of the secret.
const SIGNING_SECRET: &str = "signing";
/// Length of the key's id.
const KEY_ID_CHARS: usize = 16;

/// Signs documents and tokens of a mesh's gateways.
pub(crate) struct GatewaySigner {
    pair: Ed25519KeyPair,
    kid: String,
}

impl GatewaySigner {
    /// Opens the key of a mesh. The first gateway that needs the key creates it.
    pub(crate) async fn open(mesh: &Mesh) -> Result<Self, MeshError> {
        let seed = shared_secret(mesh, SIGNING_SECRET).await?;
        Self::of_seed(&seed)
    }

    /// Derives the key from a secret.
    pub(crate) fn of_seed(seed: &[u8]) -> Result<Self, MeshError> {
        let malformed = |reason: String| MeshError::Malformed { what: "a secret of the gateways", reason };
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|error| malformed(error.to_string()))?;
        let kid = sha256(pair.public_key().as_ref())[..KEY_ID_CHARS].to_owned();
        Ok(Self { pair, kid })
    }

    /// Returns the public key as a JSON Web Key set.
    pub(crate) fn key_set(&self) -> Value {
        let x = BASE64URL_NOPAD.encode(self.pair.public_key().as_ref());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": self.kid, "x": x}]})
    }

    /// Returns the key's id in its set.
    pub(crate) fn key_id(&self) -> &str {
        &self.kid
    }

    /// Signs these bytes.
    pub(crate) fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        self.pair.sign(bytes).as_ref().to_vec()
    }

    /// Returns whether this key signed these bytes.
    pub(crate) fn has_signed(&self, bytes: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.pair.public_key().as_ref()).verify(bytes, signature).is_ok()
    }

    /// Encodes these claims as a signed JSON Web Token.
    pub(crate) fn token(&self, claims: &Value) -> String {
        let header = json!({"alg": "EdDSA", "kid": self.kid, "typ": "JWT"});
        let encode = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        let told = format!("{}.{}", encode(&header), encode(claims));
        format!("{told}.{}", BASE64URL_NOPAD.encode(&self.sign(told.as_bytes())))
    }
}
