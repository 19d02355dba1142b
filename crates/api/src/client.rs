//! A client of the agent, over its UNIX socket or TLS.
//!
//! One connection per call: control messages are a few per second, and a call that fails then
//! leaves nothing behind to be mistaken for the next one.

mod changes;
mod cluster;
mod connect;
mod error;
mod incoming;
mod paths;
mod runs;
mod storage;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use drover_trust::{Fingerprint, Problem, Trust};
use drover_types::{HostName, MigrationId, VmName};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

pub use error::{Addresses, ClientError, Endpoint};

use crate::decode::decode;
use crate::error::ErrorBody;
use crate::limits;
use crate::views::checkpoint::CheckpointsView;
use crate::views::cordon::CordonRequest;
use crate::views::doctor::{ClusterFactsView, FactsView};
use crate::views::domain::{DomainNeedsRequest, DomainNeedsView};
use crate::views::event::EventView;
use crate::views::host::{HostView, StatusView};
use crate::views::incoming::VerdictView;
use crate::views::limit::{LimitRequest, LimitsView, PathLimits};
use crate::views::migration::{MigrateRequest, MigrationView};
use crate::views::park::{ParkRequest, ParkView, UnparkRequest};
use crate::views::plan::{ClusterInventoryView, InventoryView, PlanRequest, PlanView};
use crate::views::resolve::{ResolveRequest, ResolvedRequest, ResolvedView};
use crate::views::vm::{HeldView, StartRequest, StopRequest, VmView};

/// The header of an order that says under which leadership it is given: a number, and the larger is the newer.
pub const GENERATION: &str = "drover-generation";

/// A client of one agent. Cheap to clone; it holds no connection.
#[derive(Debug, Clone)]
pub struct Client {
    endpoint: Endpoint,
    /// What orders are given under.
    generation: Option<u64>,
}

impl Client {
    /// Of the agent on this host.
    pub fn unix(socket: impl Into<PathBuf>) -> Self {
        Self {
            endpoint: Endpoint::Unix(socket.into()),
            generation: None,
        }
    }

    /// Of the agent of that host and no other; the first address that works is used.
    #[must_use]
    pub fn host_at(host: HostName, addresses: Vec<SocketAddr>, trust: Trust) -> Self {
        Self::host_found_by(host, move || addresses.clone(), trust)
    }

    /// Of the agent of that host and no other, at the addresses that are told at each call.
    #[must_use]
    pub fn host_found_by(
        host: HostName,
        find: impl Fn() -> Vec<SocketAddr> + Send + Sync + 'static,
        trust: Trust,
    ) -> Self {
        Self {
            endpoint: Endpoint::Host {
                host,
                addresses: Addresses::told_by(find),
                trust,
            },
            generation: None,
        }
    }

    /// Of the agent that lets hosts join, known by the fingerprint in the token.
    #[must_use]
    pub fn authority_at(fingerprint: Fingerprint, mut addresses: Vec<SocketAddr>) -> Self {
        addresses.truncate(limits::PEER_ADDRESSES);
        Self {
            endpoint: Endpoint::Authority {
                fingerprint,
                addresses,
            },
            generation: None,
        }
    }

    /// The same for orders of a coordinator's leadership of this generation: an agent that has heard of a newer
    /// one refuses them.
    #[must_use]
    pub fn leading(mut self, generation: u64) -> Self {
        self.generation = Some(generation);
        self
    }

    /// Where the agent is asked.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// `GET /v1/host`
    ///
    /// # Errors
    /// See [`ClientError`]; the same holds for every call below.
    pub async fn host(&self) -> Result<HostView, ClientError> {
        self.get("/v1/host").await
    }

    /// `POST /v1/cordon`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cordon(&self, request: &CordonRequest) -> Result<HostView, ClientError> {
        self.post("/v1/cordon", request, limits::READ_CALL).await
    }

    /// `POST /v1/uncordon`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn uncordon(&self) -> Result<HostView, ClientError> {
        self.post("/v1/uncordon", &(), limits::READ_CALL).await
    }

    /// `GET /v1/status`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn status(&self) -> Result<StatusView, ClientError> {
        self.get("/v1/status").await
    }

    /// `GET /v1/vms`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn vms(&self) -> Result<Vec<VmView>, ClientError> {
        self.get("/v1/vms").await
    }

    /// `GET /v1/vms/{name}`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn vm(&self, name: &VmName) -> Result<VmView, ClientError> {
        self.get(&format!("/v1/vms/{name}")).await
    }

    /// `POST /v1/vms/{name}/start`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn start_vm(&self, name: &VmName) -> Result<VmView, ClientError> {
        self.start_vm_as(name, &StartRequest::default()).await
    }

    /// `POST /v1/vms/{name}/start`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn start_vm_as(
        &self,
        name: &VmName,
        how: &StartRequest,
    ) -> Result<VmView, ClientError> {
        self.post(&format!("/v1/vms/{name}/start"), how, limits::SAVED_CALL)
            .await
    }

    /// `POST /v1/vms/{name}/suspend`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn suspend_vm(&self, name: &VmName) -> Result<VmView, ClientError> {
        self.post(&format!("/v1/vms/{name}/suspend"), &(), limits::SAVED_CALL)
            .await
    }

    /// `POST /v1/vms/{name}/stop`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn stop_vm(&self, name: &VmName, how: &StopRequest) -> Result<VmView, ClientError> {
        self.post(&format!("/v1/vms/{name}/stop"), how, limits::STOP_CALL)
            .await
    }

    /// `POST /v1/vms/{name}/migrate`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn migrate(
        &self,
        name: &VmName,
        request: &MigrateRequest,
    ) -> Result<MigrationView, ClientError> {
        self.post(
            &format!("/v1/vms/{name}/migrate"),
            request,
            limits::START_CALL,
        )
        .await
    }

    /// `GET /v1/migrations`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn migrations(&self) -> Result<Vec<MigrationView>, ClientError> {
        self.get("/v1/migrations").await
    }

    /// `GET /v1/migrations/{id}`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn migration(&self, id: MigrationId) -> Result<MigrationView, ClientError> {
        self.get(&format!("/v1/migrations/{id}")).await
    }

    /// `POST /v1/vms/{name}/park`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn park(&self, vm: &VmName, request: &ParkRequest) -> Result<ParkView, ClientError> {
        let path = format!("/v1/vms/{vm}/park");
        self.post(&path, request, limits::READ_CALL).await
    }

    /// `POST /v1/vms/{name}/unpark`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn unpark(
        &self,
        vm: &VmName,
        request: &UnparkRequest,
    ) -> Result<ParkView, ClientError> {
        let path = format!("/v1/vms/{vm}/unpark");
        self.post(&path, request, limits::READ_CALL).await
    }

    /// `GET /v1/migrations/{id}/events`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn events(&self, id: MigrationId) -> Result<Vec<EventView>, ClientError> {
        self.get(&format!("/v1/migrations/{id}/events")).await
    }

    /// `POST /v1/migrations/{id}/resolve`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn resolve(
        &self,
        id: MigrationId,
        request: &ResolveRequest,
    ) -> Result<MigrationView, ClientError> {
        self.post(
            &format!("/v1/migrations/{id}/resolve"),
            request,
            limits::START_CALL,
        )
        .await
    }

    /// `POST /v1/migrations/{id}/resolved`, to another host's agent
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn resolved(
        &self,
        id: MigrationId,
        request: &ResolvedRequest,
    ) -> Result<ResolvedView, ClientError> {
        self.post(
            &format!("/v1/migrations/{id}/resolved"),
            request,
            limits::READ_CALL,
        )
        .await
    }

    /// `POST /v1/migrations/{id}/cancel`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cancel(&self, id: MigrationId) -> Result<MigrationView, ClientError> {
        self.post(
            &format!("/v1/migrations/{id}/cancel"),
            &(),
            limits::START_CALL,
        )
        .await
    }

    /// `GET /v1/migrations/{id}/verdict`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn verdict(&self, id: MigrationId) -> Result<VerdictView, ClientError> {
        let path = format!("/v1/migrations/{id}/verdict");
        self.call(Method::GET, &path, None, limits::VERDICT_CALL)
            .await
    }

    /// `GET /v1/limits`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn limits(&self) -> Result<LimitsView, ClientError> {
        self.get("/v1/limits").await
    }

    /// `POST /v1/limits`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn limit(&self, request: &LimitRequest) -> Result<LimitsView, ClientError> {
        self.post("/v1/limits", request, limits::READ_CALL).await
    }

    /// `POST /v1/migrations/{id}/limits`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn limit_paths(
        &self,
        id: MigrationId,
        paths: &PathLimits,
    ) -> Result<PathLimits, ClientError> {
        let path = format!("/v1/migrations/{id}/limits");
        self.post(&path, paths, limits::READ_CALL).await
    }

    /// `GET /v1/vms/{name}/held`, of another host's agent
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn held(&self, name: &VmName) -> Result<HeldView, ClientError> {
        self.get(&format!("/v1/vms/{name}/held")).await
    }

    /// `GET /v1/inventory`, with domains of libvirt's as other guests
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn inventory(&self) -> Result<InventoryView, ClientError> {
        self.get("/v1/inventory?domains=by-id").await
    }

    /// The same, of guests that are to move with disks that only their host has
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn inventory_with_disks(&self) -> Result<InventoryView, ClientError> {
        self.get("/v1/inventory?domains=by-id&disks=copied").await
    }

    /// `POST /v1/domains/needs`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn domain_needs(
        &self,
        asked: &DomainNeedsRequest,
    ) -> Result<DomainNeedsView, ClientError> {
        self.post("/v1/domains/needs", asked, limits::READ_CALL)
            .await
    }

    /// `GET /v1/facts`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn facts(&self) -> Result<FactsView, ClientError> {
        self.get("/v1/facts").await
    }

    /// `GET /v1/cluster/facts`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cluster_facts(&self) -> Result<ClusterFactsView, ClientError> {
        let path = "/v1/cluster/facts";
        self.call(Method::GET, path, None, limits::PLAN_CALL).await
    }

    /// `GET /v1/cluster/inventory`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cluster_inventory(&self) -> Result<ClusterInventoryView, ClientError> {
        let path = "/v1/cluster/inventory";
        self.call(Method::GET, path, None, limits::PLAN_CALL).await
    }

    /// `POST /v1/plan`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn plan(&self, request: &PlanRequest) -> Result<PlanView, ClientError> {
        self.post("/v1/plan", request, limits::PLAN_CALL).await
    }

    /// `GET /v1/checkpoints`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn checkpoints(&self) -> Result<CheckpointsView, ClientError> {
        self.get("/v1/checkpoints").await
    }

    /// `POST /v1/checkpoints/{vm}/remove`
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn remove_checkpoint(&self, vm: &VmName) -> Result<CheckpointsView, ClientError> {
        let path = format!("/v1/checkpoints/{vm}/remove");
        self.post(&path, &(), limits::READ_CALL).await
    }

    async fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, ClientError> {
        self.call(Method::GET, path, None, limits::READ_CALL).await
    }

    async fn post<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        within: Duration,
    ) -> Result<A, ClientError> {
        let body = serde_json::to_vec(body).map_err(|e| self.strange("POST", path, &e))?;
        // `()` is no request at all, rather than the word null.
        let body = if body == b"null" { Vec::new() } else { body };
        self.call(Method::POST, path, Some(body), within).await
    }

    async fn call<A: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        within: Duration,
    ) -> Result<A, ClientError> {
        let call = format!("{method} {path}");
        let asked = self.ask(method, path, body, &call);
        let answer =
            tokio::time::timeout(within, asked)
                .await
                .map_err(|_| ClientError::Timeout {
                    endpoint: self.endpoint.to_string(),
                    call: call.clone(),
                    after: within,
                })?;
        let (ok, bytes) = answer?;
        if ok {
            decode(&bytes).map_err(|e| self.strange("", &call, &e))
        } else {
            let body: ErrorBody = decode(&bytes).map_err(|e| self.strange("", &call, &e))?;
            Err(body.error.into())
        }
    }

    /// Sends the request; whether it succeeded, and the body of the answer.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        call: &str,
    ) -> Result<(bool, Bytes), ClientError> {
        let mut request = Request::new(Full::new(Bytes::from(body.unwrap_or_default())));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|e| self.strange("", call, &e))?;
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::from_static("drover"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(generation) = self.generation {
            headers.insert(GENERATION, HeaderValue::from(generation));
        }
        let response = match &self.endpoint {
            Endpoint::Unix(socket) => {
                let stream = UnixStream::connect(socket).await;
                let stream = stream.map_err(|e| self.unreachable(e))?;
                self.send(stream, request, call).await?
            }
            Endpoint::Host { .. } | Endpoint::Authority { .. } => {
                let stream = connect::to(&self.endpoint).await?;
                self.send(stream, request, call).await?
            }
        };
        let ok = response.status().is_success();
        let body = Limited::new(response.into_body(), limits::ANSWER_BYTES)
            .collect()
            .await;
        let body = body.map_err(|error| {
            self.untrusted(&*error)
                .unwrap_or_else(|| self.strange("", call, &error))
        })?;
        Ok((ok, body.to_bytes()))
    }

    async fn send<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        request: Request<Full<Bytes>>,
        call: &str,
    ) -> Result<Response<hyper::body::Incoming>, ClientError> {
        // In TLS 1.3 the other side may refuse us after our side of the handshake is done.
        let lost = |source: hyper::Error| {
            self.untrusted(&source).unwrap_or(ClientError::Lost {
                endpoint: self.endpoint.to_string(),
                call: call.to_owned(),
                source,
            })
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(lost)?;
        // Ends with the answer's body, or when `sender` and the body are dropped.
        let carried = tokio::spawn(connection);
        match sender.send_request(request).await {
            Ok(response) => Ok(response),
            Err(error) => {
                drop(sender);
                // If the connection ended first, it knows why and the request does not.
                match carried.await {
                    Ok(Err(cause)) => Err(lost(cause)),
                    _ => Err(lost(error)),
                }
            }
        }
    }

    fn unreachable(&self, source: io::Error) -> ClientError {
        ClientError::Unreachable {
            endpoint: self.endpoint.to_string(),
            source,
        }
    }

    fn untrusted(&self, error: &(dyn std::error::Error + 'static)) -> Option<ClientError> {
        Problem::within(error).map(|problem| ClientError::Untrusted {
            endpoint: self.endpoint.to_string(),
            problem,
        })
    }

    fn strange(&self, method: &str, call: &str, problem: &dyn fmt::Display) -> ClientError {
        ClientError::NotAnAgent {
            endpoint: self.endpoint.to_string(),
            call: format!("{method} {call}").trim().to_owned(),
            problem: problem.to_string(),
        }
    }
}
