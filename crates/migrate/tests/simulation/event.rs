//! What happens in the simulated world, and what goes wrong in it.

use drover_migrate::{Question, Resolution, Time, Verdict, destination, source};

/// What happens at a time.
#[derive(Debug, Clone)]
pub enum Event {
    /// The agent looks whether a deadline has passed.
    WakeSource {
        life: u32,
    },
    WakeDestination {
        life: u32,
    },
    /// An answer reaches the agent that asked, if it still lives its same life.
    ToSource {
        life: u32,
        input: source::Input,
    },
    ToDestination {
        life: u32,
        input: destination::Input,
    },
    /// A relay's agent hears that its session is over, unless it has another one by now.
    SourceSessionOver {
        life: u32,
        session: u32,
    },
    DestinationSessionOver {
        life: u32,
        session: u32,
    },
    /// An action takes effect.
    SourceDoes {
        life: u32,
        action: source::Action,
    },
    DestinationDoes {
        life: u32,
        action: destination::Action,
    },
    /// A request of the source's agent arrives at the destination's.
    Request {
        life: u32,
        action: source::Action,
    },
    /// One that was held up does, on a connection that was accepted then, if that agent still lives.
    HeldRequest {
        life: u32,
        action: source::Action,
        accepted: Time,
        by: u32,
    },
    /// The destination's agent answers the source's.
    Answer {
        life: u32,
        input: source::Input,
    },
    /// The destination's agent asks for the verdict.
    AskVerdict {
        life: u32,
        question: Question,
    },
    /// What the source's agent says arrives.
    Verdict {
        life: u32,
        question: Question,
        verdict: Verdict,
    },
    /// An agent gives up waiting for an answer.
    CallEnds {
        life: u32,
        question: Question,
    },
    VerdictCallEnds {
        life: u32,
        question: Question,
    },
    /// The destination's hypervisor is there.
    Started {
        life: u32,
    },
    /// The guest's state moves on: 0 memory, 1 stopped, 2 all of it is at the destination.
    Transfer {
        step: u8,
    },
    /// The incoming hypervisor has loaded everything.
    Loaded,
    /// The source's hypervisor learns that it was loaded.
    Told,
    /// The guest's deadline has passed, and postcopy is allowed.
    PostcopyRequested,
    /// The source's hypervisor follows that: it stops its guest, and has sent its devices.
    PostcopyBegins,
    DevicesSent,
    /// The destination's has them, if its session is still this one; so many parts of the pages follow.
    DevicesArrive {
        session: u32,
    },
    PagesFollow {
        session: u32,
        part: u8,
    },
    /// The last of them is there.
    AllArrive {
        session: u32,
    },
    /// The hypervisors are connected over another session.
    GoesOn {
        session: u32,
    },
    /// The destination's agent is asked to take a new session.
    Reopen {
        life: u32,
        attempt: Question,
    },
    /// The source's hypervisor goes from finish-migrate to postmigrate.
    AfterMigrate,
    /// A relay ends by itself: the other one has, or there is no path any more.
    SourceRelayEnds,
    DestinationRelayEnds,
    /// A relay whose agent died this many deaths ago, and has not come back, ends.
    SourceRelayIsAlone {
        deaths: u32,
    },
    DestinationRelayIsAlone {
        deaths: u32,
    },
    /// A hypervisor notices that its sockets are closed.
    SourceCut,
    DestinationCut,
    /// The source's hypervisor follows a cancel or a yank.
    GivesUp {
        cancelled: bool,
    },
    Fault(Fault),
    /// An operator who knows what runs where wants to decide, as soon as that is allowed.
    Operator(Resolution),
    /// An agent tells the other one what an operator decided, until that has answered.
    SourceClaims {
        life: u32,
    },
    DestinationClaims {
        life: u32,
    },
    /// Whichever agent is not there is started.
    StartDeadAgents,
    /// The order to run the guest is not answered in time.
    ResumeUnanswered {
        resume: u32,
    },
    /// An operator ends a hypervisor that hangs, where nothing else is left to do.
    EndWhatHangs,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    KillSourceAgent,
    KillDestinationAgent,
    KillSourceRelay,
    KillDestinationRelay,
    KillSourceQemu,
    KillDestinationQemu,
    /// It answers nothing and does nothing, until it is released.
    HangSourceQemu,
    HangDestinationQemu,
    /// An operator pauses the guest there, or its disk fails.
    PauseDestinationGuest,
    LoseSourceHost,
    LoseDestinationHost,
    CutPaths,
    FillSourceDisk,
    FillDestinationDisk,
    FailMigration,
    Cancel,
    // What heals.
    StartSourceAgent,
    StartDestinationAgent,
    JoinPaths,
    FreeDisks,
    ReleaseQemus,
    UnpauseDestinationGuest,
}
