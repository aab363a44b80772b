//! The floor of a gateway: forwards HTTP requests unchanged to the mesh, without any checks.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sinew_mesh::{HeaderMap, Mesh};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::child::{BenchProcessError, broken, say};
use crate::cluster::DIRECT;
use crate::http_load::whole_message;

/// Timeout of a call.
const PATIENCE: Duration = Duration::from_mins(1);

/// Listens, reports the address, and forwards requests until the process ends.
pub(crate) async fn serve_bare_gateway(mesh: Mesh) -> Result<(), BenchProcessError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(broken)?;
    let address: SocketAddr = listener.local_addr().map_err(broken)?;
    say(&address);
    loop {
        let (stream, _) = listener.accept().await.map_err(broken)?;
        let mesh = mesh.clone();
        // A failed connection is closed, and the driver reports it.
        tokio::spawn(async move { serve_connection(&mesh, stream).await });
    }
}

async fn serve_connection(mesh: &Mesh, mut stream: TcpStream) -> Result<(), BenchProcessError> {
    stream.set_nodelay(true).map_err(broken)?;
    let mut bytes = Vec::new();
    loop {
        let (start, end) = loop {
            if let Some(body) = whole_message(&bytes)? {
                break body;
            }
            if stream.read_buf(&mut bytes).await.map_err(broken)? == 0 {
                return Ok(());
            }
        };
        let mut headers = HeaderMap::new();
        headers.insert("A2A-Version", "1.0");
        headers.insert("Content-Type", "application/json");
        let body = bytes[start..end].to_vec().into();
        let reply = mesh.services().call_rpc(DIRECT, "SendMessage", headers, body, PATIENCE).await;
        let reply = reply.map_err(broken)?.body;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", reply.len());
        let mut answer = head.into_bytes();
        answer.extend_from_slice(&reply);
        stream.write_all(&answer).await.map_err(broken)?;
        bytes.drain(..end);
    }
}
