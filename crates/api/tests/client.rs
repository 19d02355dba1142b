//! The client against agents that misbehave.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use drover_api::{Client, ClientError, ErrorCode};
use drover_trust::{
    Armed, Authority, Clients, Credentials, Identity, KeyAndRequest, Problem, Trust, Validity,
    limits, system_clock,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8]) {
    let mut request = [0; 4096];
    let _ = stream.read(&mut request).await;
    // The client may hang up before it has read all.
    let _ = stream.write_all(answer).await;
    let _ = stream.shutdown().await;
}

/// Answers one request with these bytes and closes. The directory is the socket's.
async fn server(bytes: Vec<u8>) -> (Client, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        answer(stream, &bytes).await;
    });
    (Client::unix(path), dir)
}

/// The certificates of two hosts of one cluster.
fn two_hosts() -> [Armed; 2] {
    let now = SystemTime::now();
    let authority = Authority::create(Validity::from(now, limits::AUTHORITY_LIFETIME)).unwrap();
    ["a", "b"].map(|name| {
        let own = KeyAndRequest::generate().unwrap();
        let who = Identity::Host(name.parse().unwrap());
        let validity = Validity::from(now, limits::HOST_LIFETIME);
        let (certificate, _) = authority.issue(&own.request, &who, validity).unwrap();
        let pem = authority.certificate_pem();
        let credentials = Credentials::new(&own.key, &certificate, pem, None).unwrap();
        Armed::host(&credentials, Clients::Certified, &system_clock()).unwrap()
    })
}

/// The same over TLS, for as long as connections come.
async fn tls_server(armed: &Armed, bytes: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::clone(armed.server.as_ref().unwrap()));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(stream) = acceptor.accept(stream).await {
                answer(stream, &bytes).await;
            }
        }
    });
    address
}

/// Nobody listens there, most likely.
async fn nobody() -> SocketAddr {
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap();
    dead.local_addr().unwrap()
}

fn http(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

#[tokio::test]
async fn a_refusal_is_handed_on_with_its_code_and_advice() {
    let body = r#"{"error":{"code":"vm-busy","message":"guest web1 is busy","next":"wait"}}"#;
    let (client, _dir) = server(http("409 Conflict", body)).await;
    let error = client.vms().await.unwrap_err();
    let refusal = error.refusal().unwrap();
    assert_eq!(refusal.code, ErrorCode::VmBusy);
    assert_eq!(refusal.next.as_deref(), Some("wait"));
    assert_eq!(error.to_string(), "guest web1 is busy");
}

#[tokio::test]
async fn what_is_no_agent_is_called_so() {
    for answer in [http("200 OK", "<html>"), http("502 Bad Gateway", "oops")] {
        let (client, _dir) = server(answer).await;
        let error = client.vms().await.unwrap_err();
        assert!(matches!(error, ClientError::NotAnAgent { .. }), "{error}");
        assert!(error.to_string().contains("GET /v1/vms"), "{error}");
    }
}

#[tokio::test]
async fn a_connection_closed_early_is_an_error() {
    let (client, _dir) = server(Vec::new()).await;
    let error = client.vms().await.unwrap_err();
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off_at_the_limit() {
    let mut answer = http("200 OK", "");
    answer.truncate(answer.len() - "content-length: 0\r\n\r\n".len());
    answer.extend_from_slice(b"\r\n");
    answer.resize(answer.len() + drover_api::limits::ANSWER_BYTES + 2, b' ');
    let (client, _dir) = server(answer).await;
    let error = client.vms().await.unwrap_err();
    assert!(matches!(error, ClientError::NotAnAgent { .. }), "{error}");
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_unreachable_and_named() {
    let error = Client::unix("/nowhere/droverd.sock")
        .vms()
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(
        error.to_string().contains("/nowhere/droverd.sock"),
        "{error}"
    );
}

#[tokio::test]
async fn the_next_address_of_a_host_is_tried_also_if_somebody_else_is_at_the_first() {
    let [a, b] = two_hosts();
    let at_b = tls_server(&b, http("200 OK", "[]")).await;
    let at_a = tls_server(&a, http("200 OK", "[]")).await;
    let trust = Trust::of(a);
    let wanted = || "b".parse().unwrap();
    for first in [nobody().await, at_a] {
        let client = Client::host_at(wanted(), vec![first, at_b], trust.clone());
        assert_eq!(client.vms().await.unwrap(), vec![]);
    }
    // What an impostor says is told rather than that somebody is silent.
    let client = Client::host_at(wanted(), vec![at_a, nobody().await], trust);
    let error = client.vms().await.unwrap_err();
    let ClientError::Untrusted { problem, .. } = error else {
        panic!("{error}")
    };
    assert!(matches!(problem, Problem::WrongName { .. }), "{problem}");
}

#[tokio::test]
async fn an_address_that_does_not_answer_holds_nothing_up() {
    let [a, b] = two_hosts();
    let at_b = tls_server(&b, http("200 OK", "[]")).await;
    // Takes connections and never says a word.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addresses = vec![silent.local_addr().unwrap(), at_b];
    let client = Client::host_at("b".parse().unwrap(), addresses, Trust::of(a));
    let begun = std::time::Instant::now();
    assert_eq!(client.vms().await.unwrap(), vec![]);
    assert!(begun.elapsed() < drover_api::limits::HANDSHAKE);
}

#[tokio::test]
async fn an_agent_without_tls_and_a_host_without_a_cluster_are_told() {
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = plain.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = plain.accept().await.unwrap();
        answer(stream, &http("400 Bad Request", "{}")).await;
    });
    let [a, _] = two_hosts();
    let b = || "b".parse().unwrap();
    let client = Client::host_at(b(), vec![address], Trust::of(a));
    let error = client.vms().await.unwrap_err().to_string();
    assert!(error.contains("no TLS is spoken there"), "{error}");
    let client = Client::host_at(b(), vec![address], Trust::default());
    let error = client.vms().await.unwrap_err();
    assert!(error.is_refused_with(ErrorCode::NoCluster), "{error}");
}

#[tokio::test]
async fn a_host_is_asked_where_it_is_by_now_and_one_that_is_nowhere_is_not_silent() {
    let [a, b] = two_hosts();
    let at_b = tls_server(&b, http("200 OK", "[]")).await;
    let known = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = known.clone();
    let find = move || told.lock().unwrap().clone();
    let client = Client::host_found_by("b".parse().unwrap(), find, Trust::of(a));
    let error = client.vms().await.unwrap_err();
    assert!(matches!(error, ClientError::NowhereKnown { .. }), "{error}");
    assert!(!error.is_silence(), "nobody was asked");
    known.lock().unwrap().push(at_b);
    assert_eq!(client.vms().await.unwrap(), vec![]);
}
