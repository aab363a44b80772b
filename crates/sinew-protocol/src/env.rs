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
/// Time to wait for the server.
pub const NATS_TIMEOUT: &str = "NATS_TIMEOUT";
/// Namespace of the mesh.
pub const NAMESPACE: &str = "SINEW_NAMESPACE";
/// The nats-server program that `sinew dev` starts.
pub const NATS_SERVER: &str = "SINEW_NATS_SERVER";
/// Script that prints the path of a nats-server and installs one if necessary. Cargo sets it in
/// this repository, for tests.
pub const NATS_INSTALL: &str = "SINEW_NATS_INSTALL";
/// The executors' key for result tokens, 64 hex digits.
pub const RESULT_KEY: &str = "SINEW_RESULT_KEY";
/// Log filter, in the syntax of `tracing`.
pub const LOG: &str = "SINEW_LOG";
/// Any value disables colours.
pub const NO_COLOR: &str = "NO_COLOR";
/// Folder in which a command agent's program stores artifacts; set for that program.
pub const ARTIFACTS: &str = "SINEW_ARTIFACTS";
/// Point at which a process exits as if killed, `POINT:NTH`, in builds with crash points; only
/// tests set it.
pub const CRASH_AT: &str = "SINEW_CRASH_AT";
/// Folder with skills of the caller, which take precedence over those of a workflow file.
pub const SKILLS: &str = "SINEW_SKILLS";
/// Folder with recorded cases of dialects, in addition to those of this repository; only tests read
/// it.
pub const CASES: &str = "SINEW_CASES";
/// Address of a trace collector; `/v1/traces` is appended.
pub const OTLP_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Address of a trace collector, used unchanged.
pub const OTLP_TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// Protocol of the collector; only `http/protobuf` is supported.
pub const OTLP_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
/// As above, for traces.
pub const OTLP_TRACES_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
/// Headers for the collector, which the exporter reads.
pub const OTLP_HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// As above, for traces.
pub const OTLP_TRACES_HEADERS: &str = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";
/// `none` disables traces.
pub const OTEL_TRACES_EXPORTER: &str = "OTEL_TRACES_EXPORTER";
/// `true` disables traces.
pub const OTEL_SDK_DISABLED: &str = "OTEL_SDK_DISABLED";
/// Name of this process in traces.
pub const OTEL_SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
/// Additional attributes of this process in traces.
pub const OTEL_RESOURCE_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
/// NATS token. Sinew reads tokens from the URL only, but redacts this variable from logs too.
pub const NATS_TOKEN: &str = "NATS_TOKEN";

/// Every variable with its description, for the documentation.
pub const TABLE: [(&str, &str); 30] = [
    (NATS_URL, "address of the NATS server"),
    (NATS_CONTEXT, "natscli context to connect with"),
    (NATS_CREDS, "file with NATS credentials"),
    (NATS_NKEY, "file with a NATS nkey seed"),
    (NATS_USER, "NATS user"),
    (NATS_PASSWORD, "NATS password"),
    (NATS_CERT, "file with the client's TLS certificate"),
    (NATS_KEY, "file with the client's TLS key"),
    (NATS_CA, "file with the certificate authorities to trust"),
    (NATS_TIMEOUT, "time to wait for the server"),
    (NAMESPACE, "namespace of the mesh; `sinew` if not set"),
    (NATS_SERVER, "nats-server program that `sinew dev` starts"),
    (NATS_INSTALL, "script that installs a nats-server if none exists; set by cargo for tests"),
    (RESULT_KEY, "the executors' key for result tokens, 64 hex digits"),
    (LOG, "log filter"),
    (NO_COLOR, "any value disables colours"),
    (ARTIFACTS, "folder in which the program of a command agent stores artifacts; set for it"),
    (CRASH_AT, "point at which a process exits as if killed; only in test builds"),
    (CASES, "folder with additional recorded cases of dialects, for tests"),
    (OTLP_ENDPOINT, "address of a trace collector; `/v1/traces` is appended"),
    (OTLP_TRACES_ENDPOINT, "address of a trace collector, used unchanged"),
    (OTLP_PROTOCOL, "protocol of the collector; only `http/protobuf` is supported"),
    (OTLP_TRACES_PROTOCOL, "the same for traces"),
    (OTLP_HEADERS, "headers for the collector"),
    (OTLP_TRACES_HEADERS, "the same for traces"),
    (OTEL_TRACES_EXPORTER, "`none` sends no traces"),
    (OTEL_SDK_DISABLED, "`true` sends no traces"),
    (OTEL_SERVICE_NAME, "name of this process in traces"),
    (OTEL_RESOURCE_ATTRIBUTES, "additional attributes of this process in traces"),
    (NATS_TOKEN, "not read; redacted in logs"),
];
