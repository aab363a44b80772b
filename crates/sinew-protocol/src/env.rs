//! Every environment variable that Sinew reads.

/// Address of the NATS server.
pub const NATS_URL: &str = "NATS_URL";
/// Name of the natscli context to connect with.
pub const NATS_CONTEXT: &str = "NATS_CONTEXT";
/// File with NATS credentials.
pub const NATS_CREDS: &str = "NATS_CREDS";
/// File with a NATS nkey seed.
pub const NATS_NKEY: &str = "NATS_NKEY";
/// NATS user.
pub const NATS_USER: &str = "NATS_USER";
/// NATS password.
pub const NATS_PASSWORD: &str = "NATS_PASSWORD";
/// File with the client's TLS certificate.
pub const NATS_CERT: &str = "NATS_CERT";
/// File with the client's TLS key.
pub const NATS_KEY: &str = "NATS_KEY";
/// File with the certificate authorities to trust.
pub const NATS_CA: &str = "NATS_CA";
/// How long to wait for the server.
pub const NATS_TIMEOUT: &str = "NATS_TIMEOUT";
/// The mesh.
pub const NAMESPACE: &str = "SINEW_NAMESPACE";
/// The nats-server program that `sinew dev` starts.
pub const NATS_SERVER: &str = "SINEW_NATS_SERVER";
/// A script that prints the path of a nats-server, installing one if it must. Cargo sets it in this repository, for tests.
pub const NATS_INSTALL: &str = "SINEW_NATS_INSTALL";
/// The executors' key for result tokens, 64 hex digits.
pub const RESULT_KEY: &str = "SINEW_RESULT_KEY";
/// Which log lines to write, in tracing's filter syntax.
pub const LOG: &str = "SINEW_LOG";
/// Set to anything to write no colours.
pub const NO_COLOR: &str = "NO_COLOR";

/// Every variable with what it means, for documentation.
pub const TABLE: [(&str, &str); 16] = [
    (NATS_URL, "address of the NATS server"),
    (NATS_CONTEXT, "natscli context to connect with"),
    (NATS_CREDS, "file with NATS credentials"),
    (NATS_NKEY, "file with a NATS nkey seed"),
    (NATS_USER, "NATS user"),
    (NATS_PASSWORD, "NATS password"),
    (NATS_CERT, "file with the client's TLS certificate"),
    (NATS_KEY, "file with the client's TLS key"),
    (NATS_CA, "file with the certificate authorities to trust"),
    (NATS_TIMEOUT, "how long to wait for the server"),
    (NAMESPACE, "the mesh; `sinew` when not set"),
    (NATS_SERVER, "nats-server program that `sinew dev` starts"),
    (NATS_INSTALL, "script that installs a nats-server when there is none; set by cargo for tests"),
    (RESULT_KEY, "the executors' key for result tokens, 64 hex digits"),
    (LOG, "which log lines to write"),
    (NO_COLOR, "set to anything to write no colours"),
];
