//! What the agent answers when it does not do what it was asked.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal, $status:literal, $preflight:literal;)+) => {
        /// Why a request was refused or failed: a closed list, one word for a program to act on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum ErrorCode {
            $($(#[doc = $doc])+ $name,)+
            /// A code of a newer agent that this one does not know.
            #[serde(other)]
            Unknown,
        }

        impl ErrorCode {
            /// Every code that an agent of this version sends.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The word in JSON.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                    Self::Unknown => "unknown",
                }
            }

            /// The HTTP status that carries it.
            #[must_use]
            pub fn status(self) -> u16 {
                match self {
                    $(Self::$name => $status,)+
                    Self::Unknown => 500,
                }
            }

            /// Whether the request was refused before anything was changed (exit code 4 of
            /// `drover`): a precondition does not hold.
            #[must_use]
            pub fn is_preflight(self) -> bool {
                match self {
                    $(Self::$name => $preflight,)+
                    Self::Unknown => false,
                }
            }
        }
    };
}

codes! {
    /// The request cannot be read: no JSON, a field missing, a value out of range.
    BadRequest = "bad-request", 400, false;
    /// The request body is larger than the agent takes.
    TooLarge = "too-large", 413, false;
    /// There is no such route.
    NoSuchRoute = "no-such-route", 404, false;
    /// The route is there, but not for this method.
    MethodNotAllowed = "method-not-allowed", 405, false;
    /// The caller has no certificate, or one of a host that this is no business of.
    NotAPeer = "not-a-peer", 403, true;
    /// The caller asks more often than is answered.
    TooManyRequests = "too-many-requests", 429, true;
    /// The route is not for other hosts: only for the local UNIX socket and for operators.
    LocalOnly = "local-only", 403, false;
    /// The agent is ending and takes no new work.
    ShuttingDown = "shutting-down", 503, true;
    /// The agent did not finish in time.
    Timeout = "timeout", 504, false;
    /// The agent failed at something that should not fail; its log tells more.
    Internal = "internal", 500, false;

    /// No definition and no process of that name on this host.
    NoSuchVm = "no-such-vm", 404, true;
    /// The definition file of the guest cannot be used.
    DefinitionInvalid = "definition-invalid", 422, true;
    /// The guest runs already.
    VmRunning = "vm-running", 409, true;
    /// The guest does not run.
    VmNotRunning = "vm-not-running", 409, true;
    /// Another operation on the guest is under way.
    VmBusy = "vm-busy", 409, true;
    /// The destination already has a guest of that name.
    VmExists = "vm-exists", 409, true;
    /// Another host of the cluster has a process of the guest.
    VmElsewhere = "vm-elsewhere", 409, true;
    /// The guest runs on another host now, and must never run here as well.
    VmHandedOff = "vm-handed-off", 409, true;
    /// The guest is a domain of libvirt's.
    OfLibvirt = "of-libvirt", 409, true;
    /// The destination lacks what a domain of libvirt's needs, or cannot tell whether it does.
    HostLacks = "host-lacks", 409, true;
    /// Where the guest is to run, libvirt has a domain in memory that may be the same guest.
    DomainInMemory = "domain-in-memory", 409, true;
    /// Whether libvirt has such a domain in memory is not known.
    LibvirtNotKnown = "libvirt-not-known", 503, true;
    /// The host has no room for the guest's memory.
    NotEnoughMemory = "not-enough-memory", 409, true;
    /// The QEMU binary is not there or cannot be executed.
    QemuMissing = "qemu-missing", 422, true;
    /// The QEMU binary is not in the list that peers may have started.
    QemuNotAllowed = "qemu-not-allowed", 403, true;
    /// The QEMU binary has no such machine type.
    MachineTypeMissing = "machine-type-missing", 422, true;
    /// QEMU did not start, or ended, or answered with an error.
    QemuFailed = "qemu-failed", 500, false;
    /// The host's disk has no room for the guest's saved state.
    NotEnoughSpace = "not-enough-space", 409, true;
    /// A disk of the guest cannot be copied.
    DiskNotCopied = "disk-not-copied", 409, true;
    /// The guest could not be suspended.
    SuspendFailed = "suspend-failed", 500, false;
    /// The guest's saved state cannot be gone on with: damaged, or of another definition.
    SavedStateUnusable = "saved-state-unusable", 409, true;
    /// The guest did not obey the power button in time; it still runs.
    StopTimeout = "stop-timeout", 504, false;

    /// This host belongs to no cluster.
    NoCluster = "no-cluster", 409, true;
    /// This host belongs to a cluster already.
    InCluster = "in-cluster", 409, true;
    /// Only the host that has the authority's key can do that.
    NotTheAuthority = "not-the-authority", 409, true;
    /// The join token cannot be used.
    TokenRefused = "token-refused", 403, true;
    /// The cluster has a host of that name.
    HostExists = "host-exists", 409, true;
    /// The clocks of two hosts are too far apart.
    ClockSkew = "clock-skew", 409, true;
    /// Nobody of that name has a certificate of this cluster.
    NoSuchMember = "no-such-member", 404, true;
    /// A port that a member of a cluster has open cannot be opened.
    PortUnusable = "port-unusable", 409, true;
    /// Keys or certificates of this host cannot be used or kept.
    TrustFailed = "trust-failed", 500, false;

    /// The destination is no host of the cluster.
    NoSuchHost = "no-such-host", 404, true;
    /// The destination is this host.
    SameHost = "same-host", 409, true;
    /// The host takes no guests: it is cordoned.
    HostCordoned = "host-cordoned", 409, true;
    /// A peer was asked to do something, and what became of that is not known: its answer did not come.
    OutcomeUnknown = "outcome-unknown", 504, false;
    /// The peer's agent does not answer.
    PeerUnreachable = "peer-unreachable", 502, true;
    /// The two hosts do not believe each other's certificates.
    PeerUntrusted = "peer-untrusted", 502, true;
    /// The peer speaks for another host than its certificate says.
    PeerMismatch = "peer-mismatch", 502, true;
    /// The two agents have no protocol version in common.
    VersionMismatch = "version-mismatch", 409, true;
    /// The destination does not protect the lanes as this host demands.
    EncryptionRefused = "encryption-refused", 409, true;
    /// No pair of interfaces of the two hosts reaches each other.
    NoPath = "no-path", 409, true;
    /// There is no plan that keeps to the policy.
    NoPlan = "no-plan", 409, true;
    /// No migration of that id.
    NoSuchMigration = "no-such-migration", 404, true;
    /// The guest is already migrating.
    MigrationUnderWay = "migration-under-way", 409, true;
    /// The migration has ended.
    MigrationEnded = "migration-ended", 409, true;
    /// Nothing is ambiguous: the other host answers, or it is decided whose the guest is.
    NotAmbiguous = "not-ambiguous", 409, true;
    /// The operator has to state what makes it safe.
    NotConfirmed = "not-confirmed", 409, true;
    /// The guest has been handed off: it can no longer be called back.
    TooLate = "too-late", 409, true;
    /// The migration is not in a phase in which that can be asked.
    WrongPhase = "wrong-phase", 409, false;

    /// The guest has no disk of that name, nor in that file.
    NoSuchDisk = "no-such-disk", 404, true;
    /// The disk cannot move as it is.
    DiskStays = "disk-stays", 409, true;
    /// No file for a disk can be made there: something is there already, there is no such folder, or too little room.
    PlaceUnusable = "place-unusable", 409, true;
    /// No move of a disk of that id.
    NoSuchStorageMove = "no-such-storage-move", 404, true;
    /// The move of the disk has ended.
    StorageMoveEnded = "storage-move-ended", 409, true;

    /// Nothing answers by that id; not for whoever asks, or no longer.
    NoSuchAnswerer = "no-such-answerer", 404, false;

    /// Runs are carried out by the agent of another host.
    NotTheCoordinator = "not-the-coordinator", 409, true;
    /// The order was given under a leadership that a newer one has followed.
    Superseded = "superseded", 409, true;
    /// Another run is under way: there is one at a time in the cluster.
    RunUnderWay = "run-under-way", 409, true;
    /// No run of that id.
    NoSuchRun = "no-such-run", 404, true;
    /// The run has ended.
    RunEnded = "run-ended", 409, true;
    /// The cluster is no longer as it was when the plan was made.
    PlanOutdated = "plan-outdated", 409, true;
    /// The host is changed already, or what was left of an earlier change is not cleared up yet.
    ChangeUnderWay = "change-under-way", 409, true;
    /// No change of that id.
    NoSuchChange = "no-such-change", 404, true;
    /// The plan of changes cannot be carried out here: it is none, or of another host, start or version.
    ChangePlanUnusable = "change-plan-unusable", 422, true;
    /// A link may go for some seconds, and the host has guests or may get some.
    NotDrained = "not-drained", 409, true;
    /// Nothing of the change is there to be undone, or something else has changed it since.
    NotUndoable = "not-undoable", 409, true;
    /// The host has no such interface.
    NoSuchNic = "no-such-nic", 404, true;
    /// The link cannot be set to that, or is already.
    LinkNotSet = "link-not-set", 422, true;
    /// The cluster's state cannot be read or written.
    StoreUnavailable = "store-unavailable", 503, true;
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request that was not carried out: why, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// For programs.
    pub code: ErrorCode,
    /// For people: what, where, with the numbers.
    pub message: String,
    /// What to do next, often a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The same as values, where there are some: of `no-plan` why, by its field `refusal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub details: Option<Box<serde_json::Value>>,
}

impl Refusal {
    /// Without advice.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            next: None,
            details: None,
        }
    }

    /// With what to do next.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }
}

/// The body of every answer with a status of 400 and above.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// Why.
    pub error: Refusal,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_the_same_word_everywhere() {
        for code in ErrorCode::ALL {
            let json = serde_json::to_value(code).unwrap();
            assert_eq!(json, code.as_str());
            assert!((400..600).contains(&code.status()), "{code}");
        }
    }

    #[test]
    fn a_code_of_a_newer_agent_is_read_as_unknown() {
        let text = r#"{"error":{"code":"moon-phase","message":"not today","more":1}}"#;
        let body: ErrorBody = serde_json::from_str(text).unwrap();
        assert_eq!(body.error, Refusal::new(ErrorCode::Unknown, "not today"));
    }
}
