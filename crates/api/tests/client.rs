//! The client against agents that misbehave.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use drover_api::{Client, ClientError, ErrorCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};

/// Answers one request with these bytes and closes.
async fn server(answer: Vec<u8>) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await.unwrap();
        // The client may hang up before it has read all.
        let _ = stream.write_all(&answer).await;
    });
    Client::tcp(vec![address])
}

fn http(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

#[tokio::test]
async fn a_refusal_is_handed_on_with_its_code_and_advice() {
    let body = r#"{"error":{"code":"vm-busy","message":"guest web1 is busy","next":"wait"}}"#;
    let error = server(http("409 Conflict", body))
        .await
        .vms()
        .await
        .unwrap_err();
    let refusal = error.refusal().unwrap();
    assert_eq!(refusal.code, ErrorCode::VmBusy);
    assert_eq!(refusal.next.as_deref(), Some("wait"));
    assert_eq!(error.to_string(), "guest web1 is busy");
}

#[tokio::test]
async fn what_is_no_agent_is_called_so() {
    for answer in [http("200 OK", "<html>"), http("502 Bad Gateway", "oops")] {
        let error = server(answer).await.vms().await.unwrap_err();
        assert!(matches!(error, ClientError::NotAnAgent { .. }), "{error}");
        assert!(error.to_string().contains("GET /v1/vms"), "{error}");
    }
}

#[tokio::test]
async fn a_connection_closed_early_is_an_error() {
    let error = server(Vec::new()).await.vms().await.unwrap_err();
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off_at_the_limit() {
    let mut answer = http("200 OK", "");
    answer.truncate(answer.len() - "content-length: 0\r\n\r\n".len());
    answer.extend_from_slice(b"\r\n");
    answer.resize(answer.len() + drover_api::limits::ANSWER_BYTES + 2, b' ');
    let error = server(answer).await.vms().await.unwrap_err();
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
async fn the_next_address_of_a_peer_is_tried() {
    let dead = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = dead.local_addr().unwrap();
    drop(dead);
    let good = server(http("200 OK", "[]")).await;
    let drover_api::Endpoint::Tcp(addresses) = good.endpoint() else {
        panic!("a TCP client")
    };
    let client = Client::tcp(vec![nobody, addresses[0]]);
    assert_eq!(client.vms().await.unwrap(), vec![]);
}

#[tokio::test]
async fn the_unix_socket_is_spoken_to_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await.unwrap();
        stream.write_all(&http("200 OK", "[]")).await.unwrap();
    });
    assert_eq!(Client::unix(&path).vms().await.unwrap(), vec![]);
}
