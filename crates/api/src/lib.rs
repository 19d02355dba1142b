//! The HTTP API of the agent: its types, a client, and the committed OpenAPI document.
//!
//! Only this edge speaks JSON. The types own no behaviour beyond being read, checked and shown;
//! they never talk to a hypervisor or to a host.
//!
//! ```text
//!   drover ──UNIX socket──▶ droverd ──TLS, certificate of a host──▶ droverd of another host
//!          (all routes)               (peer routes only)
//!   drover ──TLS, certificate of an operator──▶ droverd
//!          (all routes)
//! ```
//!
//! Field names are `snake_case`, the words of an enum `kebab-case`. Sizes are bytes, rates bytes
//! per second (links: bits per second), times RFC 3339. A reader ignores fields that it does not
//! know, so that agents of neighbouring versions understand each other.
//!
//! # Invariant
//! Nothing that a peer sends makes the client allocate more than [`limits::ANSWER_BYTES`], or wait
//! longer than the deadline of its call.

mod client;
mod decode;
mod definition;
mod error;
pub mod limits;
mod schema;
mod views;

pub use client::{Addresses, Client, ClientError, Endpoint, GENERATION};
pub use decode::decode;
pub use definition::{DEFAULT_QEMU, InvalidDefinition, VmDefinition};
pub use error::{ErrorBody, ErrorCode, Refusal};
pub use schema::{InterfaceSchema, MemberSchema, MembershipSchema, PathEndSchema, PathSchema};
pub use views::change::{
    ChangeDetailView, ChangeFileView, ChangeLastingHow, ChangeLastingView, ChangeLeftOut,
    ChangeNotKept, ChangePlanRequest, ChangePlanView, ChangeRequest, ChangeState, ChangeStepState,
    ChangeStepView, ChangeView, ForgottenView, LinkRequest, LinkSetting, LinkView, UndoRequest,
};
pub use views::checkpoint::{CheckpointKind, CheckpointView, CheckpointsView};
pub use views::cluster::{
    AdmissionRequest, CertificateView, ClusterView, CoordinatorRequest, HostCertificate,
    JoinRequest, MemberView, OperatorCertificate, OperatorRequest, OperatorView, RemovedView,
    RenewalRequest, SyncRequest, TokenRequest, TokenView,
};
pub use views::codec::{CodecView, ContentClass};
pub use views::cordon::{CordonRequest, CordonView};
pub use views::data_path::{DataPathKind, DataPathView, PlacementView};
pub use views::doctor::{ClusterFactsView, FactsView};
pub use views::domain::{
    DiskLayout, DomainLack, DomainMachine, DomainNeed, DomainNeedsRequest, DomainNeedsView,
    DomainView, FileSeen, FileServer, NEW_DISKS, NewDisk, NewDisksRoom,
};
pub use views::event::{EventKind, EventView, NicPair};
pub use views::expansion::{ExpansionTimes, ExpansionView};
pub use views::host::{API_VERSION, HostView, MemoryView, PeerView, ProtocolRange, StatusView};
pub use views::incoming::{
    AbandonRequest, IncomingNetworks, IncomingOffer, IncomingPaths, IncomingPhase, IncomingReopen,
    IncomingRequest, IncomingStart, IncomingView, MovingDomain, ReductionTerms, SessionSizes,
    Verdict, VerdictView,
};
pub use views::interrupts::InterruptsView;
pub use views::kept::{KeptReport, KeptUnusable, KeptView};
pub use views::latency::{CpuLatencyView, IdleStateView};
pub use views::libvirt::{LibvirtState, LibvirtView};
pub use views::limit::{
    InvalidLimit, Limit, LimitRequest, LimitScope, LimitView, LimitsView, PathLimit, PathLimits,
};
pub use views::load::{
    LineView, LoadOrder, LoadPath, LoadRequest, LoadTakeRequest, LoadTakenView, LoadedPath,
    LoadedTogether, LoadedView,
};
pub use views::migration::{
    BytesView, DisksView, GuestPlace, LeftOut, MigrateRequest, MigrationPhase, MigrationRole,
    MigrationView, RelayView,
};
pub use views::park::{ParkHow, ParkPhase, ParkRequest, ParkView, UnparkRequest};
pub use views::paths::{
    AnsweredAt, AnsweredView, AnswererRequest, AnswererView, ClusterPathsRequest, ClusterPathsView,
    CountedView, OpenAnswer, OpenEnds, OpenRequest, OpenedView, PathLeftOut, PathsAskRequest,
    PathsView, TicketText,
};
pub use views::plan::{ClusterInventoryView, InventoryView, MemberLeftOut, PlanRequest, PlanView};
pub use views::postcopy::PostcopyView;
pub use views::reduction::{
    OpaqueChannel, ReducedPages, ReducedSection, ReductionDecided, ReductionTimes,
    ReductionVerdict, ReductionView, SharedPagesView, SlowestStage,
};
pub use views::resolve::{
    AmbiguityView, Resolution, ResolutionView, ResolveRequest, ResolvedRequest, ResolvedState,
    ResolvedView, Told,
};
pub use views::run::{
    CancelRunRequest, LeftView, LiveView, MoveState, MoveView, ParkedState, ParkedView, RunPhase,
    RunRequest, RunResult, RunView, RunningMoves,
};
pub use views::security::{Encryption, LaneEncryption, LaneSecurity};
pub use views::storage::{
    DiskFormat, StorageMoveEvent, StorageMovePhase, StorageMoveRequest, StorageMoveView,
};
pub use views::traffic::{
    ChannelView, LaneState, LaneView, NicView, PathState, PathView, TcpView, TrafficView,
};
pub use views::vm::{
    DomainHeld, ExitKind, ExitView, HeldView, StartRequest, StopRequest, VmSource, VmState, VmView,
};

/// The committed description of every route and type, generated from the agent's own router.
pub const OPENAPI: &str = include_str!("../openapi.json");
