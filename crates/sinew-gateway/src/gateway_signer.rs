//! The key of the gateways of a mesh: Ed25519, made from a secret that they share.

use data_encoding::BASE64URL_NOPAD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde_json::{Value, json};
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::artifact::sha256;

use crate::access::shared_secret;

/// Name of the secret.
const SIGNING_SECRET: &str = "signing";
/// Characters of the id of the key.
const KEY_ID_CHARS: usize = 16;

/// Signs what leaves the gateways of a mesh.
pub(crate) struct GatewaySigner {
    pair: Ed25519KeyPair,
    kid: String,
}

impl GatewaySigner {
    /// The key of a mesh. The first gateway that needs it makes it.
    pub(crate) async fn open(mesh: &Mesh) -> Result<Self, MeshError> {
        let seed = shared_secret(mesh, SIGNING_SECRET).await?;
        Self::of_seed(&seed)
    }

    /// The key that follows from a secret.
    pub(crate) fn of_seed(seed: &[u8]) -> Result<Self, MeshError> {
        let malformed = |reason: String| MeshError::Malformed { what: "a secret of the gateways", reason };
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|error| malformed(error.to_string()))?;
        let kid = sha256(pair.public_key().as_ref())[..KEY_ID_CHARS].to_owned();
        Ok(Self { pair, kid })
    }

    /// The public key, as a set of JSON Web Keys.
    pub(crate) fn key_set(&self) -> Value {
        let x = BASE64URL_NOPAD.encode(self.pair.public_key().as_ref());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": self.kid, "x": x}]})
    }

    /// Id of the key in its set.
    pub(crate) fn key_id(&self) -> &str {
        &self.kid
    }

    /// The signature of these bytes.
    pub(crate) fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        self.pair.sign(bytes).as_ref().to_vec()
    }

    /// Whether this key has signed these bytes.
    pub(crate) fn has_signed(&self, bytes: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.pair.public_key().as_ref()).verify(bytes, signature).is_ok()
    }

    /// These claims as a JSON Web Token.
    pub(crate) fn token(&self, claims: &Value) -> String {
        let header = json!({"alg": "EdDSA", "kid": self.kid, "typ": "JWT"});
        let encode = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
        let told = format!("{}.{}", encode(&header), encode(claims));
        format!("{told}.{}", BASE64URL_NOPAD.encode(&self.sign(told.as_bytes())))
    }
}
