//! One HTTP connection to one member. It is not kept for the next call: one to a member that fell
//! silent would hold that up.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::error::Invalid;
use crate::limits;

/// Where a member listens for clients.
#[derive(Debug, Clone)]
pub(super) struct Member {
    host: String,
    port: u16,
}

impl Member {
    /// `host:port`, `1.2.3.4:port` or `[::1]:port`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let parts = text.rsplit_once(':').and_then(|(host, port)| {
            let host = host
                .strip_prefix('[')
                .and_then(|host| host.strip_suffix(']'))
                .unwrap_or(host);
            Some((host, port.parse().ok()?))
        });
        match parts {
            Some((host, port)) if ServerName::try_from(host).is_ok() => Ok(Self {
                host: host.to_owned(),
                port,
            }),
            _ => Err(Invalid::Members {
                problem: format!("{text:?} is not HOST:PORT"),
            }),
        }
    }

    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

/// An answer that came, whatever it says.
pub(super) enum Answer {
    Whole(StatusCode, Bytes),
    /// It has more than [`limits::ANSWER_BYTES`].
    TooLong,
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Connection {
    requests: SendRequest<Full<Bytes>>,
    host: String,
}

impl Connection {
    pub async fn open(member: &Member, tls: Option<&Arc<ClientConfig>>) -> Result<Self, String> {
        let failed = |error: std::io::Error| error.to_string();
        let stream = TcpStream::connect((member.host.as_str(), member.port))
            .await
            .map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let requests = match tls {
            None => Self::over(stream).await?,
            Some(config) => {
                let name =
                    ServerName::try_from(member.host.clone()).map_err(|error| error.to_string())?;
                let connector = TlsConnector::from(Arc::clone(config));
                Self::over(connector.connect(name, stream).await.map_err(failed)?).await?
            }
        };
        Ok(Self {
            requests,
            host: member.address(),
        })
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<SendRequest<Full<Bytes>>, String> {
        let (requests, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        // Ends with the last answer; why it failed, who asked is told as well.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(requests)
    }

    /// Asks, and gives the beginning of the answer.
    pub async fn begin(
        &mut self,
        path: &str,
        body: Bytes,
        patience: Option<Duration>,
    ) -> Result<Response<Incoming>, String> {
        let mut request = Request::post(path)
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, "application/json");
        request = match patience {
            // So that a member without a leader gives up when nobody waits for it any more.
            Some(patience) => request.header("Grpc-Timeout", format!("{}m", patience.as_millis())),
            // A stream of a member that loses its leader ends, instead of falling silent.
            None => request.header("Grpc-Metadata-hasleader", "true"),
        };
        let request = request
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        let asking = async {
            self.requests.ready().await?;
            self.requests.send_request(request).await
        };
        asking.await.map_err(|error| in_words(&error))
    }

    /// Asks, and gives the whole answer.
    pub async fn exchange(
        &mut self,
        path: &str,
        body: Bytes,
        patience: Duration,
    ) -> Result<Answer, String> {
        let answer = self.begin(path, body, Some(patience)).await?;
        let status = answer.status();
        match Limited::new(answer.into_body(), limits::ANSWER_BYTES)
            .collect()
            .await
        {
            Ok(whole) => Ok(Answer::Whole(status, whole.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => Ok(Answer::TooLong),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// hyper's own words do not name the cause.
fn in_words(error: &hyper::Error) -> String {
    std::error::Error::source(error)
        .map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_members_address_is_read_and_shown_alike() {
        for good in ["a:2379", "a.example:1", "10.0.0.1:2379", "[fd00::1]:2379"] {
            assert_eq!(Member::parse(good).unwrap().address(), good);
        }
    }

    #[test]
    fn what_is_no_host_and_port_is_refused() {
        for bad in [
            "",
            "a",
            ":1",
            "a:",
            "a:65536",
            "http://a:1",
            "a b:1",
            "a:-1",
        ] {
            assert!(Member::parse(bad).is_err(), "{bad:?}");
        }
    }
}
