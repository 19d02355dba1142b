//! The commands that ask once and show the answer.

use std::io::Write;

use drover_api::{
    Client, CordonRequest, LimitRequest, LimitScope, MigrationView, StartRequest, StopRequest,
};
use drover_types::{MigrationId, VmName};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{Agent, LimitArgs, VmCommand};
use crate::failure::{Failure, exit};
use crate::{remote, show};

/// What a command has to say at its end.
#[derive(Debug)]
pub struct Outcome {
    exit: u8,
    text: String,
    document: Option<Value>,
}

impl Outcome {
    /// Text for a person.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            exit: exit::DONE,
            text: text.into(),
            document: None,
        }
    }

    /// Text for a person, and the same for a program below `key`.
    pub fn new(
        text: impl Into<String>,
        key: &str,
        value: &impl Serialize,
    ) -> Result<Self, Failure> {
        Self::of_parts(text, &[(key, encoded(value)?)])
    }

    /// The same with several keys.
    pub fn of_parts(text: impl Into<String>, parts: &[(&str, Value)]) -> Result<Self, Failure> {
        let mut document = json!({ "exit_code": exit::DONE });
        for (key, value) in parts {
            document[*key] = value.clone();
        }
        Ok(Self {
            exit: exit::DONE,
            text: text.into(),
            document: Some(document),
        })
    }

    /// The same, with another exit code than that of what is done.
    #[must_use]
    pub fn with_exit(mut self, exit: u8) -> Self {
        self.exit = exit;
        if let Some(document) = &mut self.document {
            document["exit_code"] = exit.into();
        }
        self
    }

    /// Of a command that printed its answer itself.
    pub fn printed_already(exit: u8) -> Self {
        Self {
            exit,
            text: String::new(),
            document: None,
        }
    }

    /// Prints it; the exit code.
    pub fn print(&self, json: bool) -> u8 {
        match &self.document {
            Some(document) if json => to_stdout(&format!("{document:#}\n")),
            _ => to_stdout(&self.text),
        }
        self.exit
    }
}

/// Prints to stdout. Whoever closes it early, such as `head`, has read enough.
pub fn to_stdout(text: &str) {
    let mut stdout = std::io::stdout().lock();
    // There is nobody left to tell.
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}

/// As a value of JSON.
pub fn encoded(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| Failure::error(error.to_string()))
}

/// The agent of this host, or of the one that is named.
pub fn client(agent: &Agent) -> Result<Client, Failure> {
    match (&agent.agent, &agent.identity) {
        (Some(url), Some(identity)) => remote::client(url, identity),
        _ => Ok(Client::unix(&agent.socket)),
    }
}

/// `drover host`
pub async fn host(agent: &Agent) -> Result<Outcome, Failure> {
    let host = client(agent)?.host().await.map_err(Failure::of_reading)?;
    Outcome::new(show::host(&host), "host", &host)
}

/// `drover inventory`
pub async fn inventory(agent: &Agent) -> Result<Outcome, Failure> {
    let asked = client(agent)?.cluster_inventory().await;
    let view = asked.map_err(Failure::of_reading)?;
    Outcome::of_parts(
        show::inventory(&view),
        &[
            ("inventory", encoded(&view.inventory)?),
            ("left_out", encoded(&view.left_out)?),
            ("notes", encoded(&view.notes)?),
        ],
    )
}

/// `drover checkpoints`
pub async fn checkpoints(agent: &Agent, remove: Option<VmName>) -> Result<Outcome, Failure> {
    let client = client(agent)?;
    let view = match remove {
        Some(vm) => {
            let removed = client.remove_checkpoint(&vm).await;
            removed.map_err(Failure::of_changing)?
        }
        None => client.checkpoints().await.map_err(Failure::of_reading)?,
    };
    Outcome::new(show::checkpoints(&view), "checkpoints", &view)
}

/// `drover cordon`
pub async fn cordon(agent: &Agent, reason: Option<String>) -> Result<Outcome, Failure> {
    let asked = client(agent)?.cordon(&CordonRequest { reason }).await;
    let host = asked.map_err(Failure::of_changing)?;
    let text = format!(
        "{} takes no guests from now on; `drover uncordon` has it take them again\n",
        host.host
    );
    Outcome::new(text, "host", &host)
}

/// `drover uncordon`
pub async fn uncordon(agent: &Agent) -> Result<Outcome, Failure> {
    let asked = client(agent)?.uncordon().await;
    let host = asked.map_err(Failure::of_changing)?;
    Outcome::new(format!("{} takes guests\n", host.host), "host", &host)
}

/// `drover status`
pub async fn status(agent: &Agent) -> Result<Outcome, Failure> {
    let status = client(agent)?.status().await.map_err(Failure::of_reading)?;
    let mut parts = vec![
        ("host", encoded(&status.host)?),
        ("vms", encoded(&status.vms)?),
        ("migrations", encoded(&status.migrations)?),
        ("peers", encoded(&status.peers)?),
        ("limits", encoded(&status.limits)?),
    ];
    if let Some(away) = &status.checkpoints_away {
        parts.push(("checkpoints_away", encoded(away)?));
    }
    if let Some(libvirt) = &status.libvirt {
        parts.push(("libvirt", encoded(libvirt)?));
    }
    Outcome::of_parts(show::status(&status), &parts)
}

/// `drover history …`
pub async fn history(agent: &Agent, what: Option<&str>) -> Result<Outcome, Failure> {
    let client = client(agent)?;
    let all = client.migrations().await.map_err(Failure::of_reading)?;
    let Some(what) = what else {
        return Outcome::new(show::history(&all), "migrations", &all);
    };
    let of_it: Vec<_> = match what.parse::<MigrationId>() {
        Ok(id) => all.into_iter().filter(|view| view.id == id).collect(),
        Err(_) => all
            .into_iter()
            .filter(|view| view.vm.as_str() == what)
            .collect(),
    };
    let Some(last) = of_it.first() else {
        let message = format!("this host remembers no migration of {what:?}");
        return Err(Failure::new(exit::ERROR, "no-such-migration", message)
            .next("`drover history` lists those that it remembers"));
    };
    let events = client.events(last.id).await.map_err(Failure::of_reading)?;
    let text = format!("{}\n{}", show::history(&of_it), show::events(last, &events));
    let parts = [
        ("migrations", encoded(&of_it)?),
        ("migration", encoded(last)?),
        ("events", encoded(&events)?),
    ];
    Outcome::of_parts(text, &parts)
}

/// `drover limit …`
pub async fn limit(agent: &Agent, what: LimitArgs) -> Result<Outcome, Failure> {
    let client = client(agent)?;
    if what.rate.is_none() && !what.clear {
        if what.nic.is_some() || what.migration.is_some() {
            let message = "say which limit: a rate such as 5gbit or 50%, or --clear";
            return Err(Failure::new(exit::USAGE, "wrong-usage", message));
        }
        let view = client.limits().await.map_err(Failure::of_reading)?;
        return Outcome::new(show::limits(&view.limits), "limits", &view.limits);
    }
    let scope = match (what.nic, what.migration) {
        (Some(nic), _) => LimitScope::Nic { nic },
        (None, Some(what)) => LimitScope::Migration {
            migration: match what.parse::<MigrationId>() {
                Ok(id) => id,
                Err(_) => migration_of(&client, &what).await?,
            },
        },
        (None, None) => LimitScope::Host,
    };
    let limit = what.rate;
    let request = LimitRequest { scope, limit };
    let view = client.limit(&request).await.map_err(Failure::of_changing)?;
    Outcome::new(show::limits(&view.limits), "limits", &view.limits)
}

/// `drover vm …`
pub async fn vm(agent: &Agent, command: VmCommand) -> Result<Outcome, Failure> {
    let client = client(agent)?;
    match command {
        VmCommand::List => {
            let vms = client.vms().await.map_err(Failure::of_reading)?;
            Outcome::new(show::vms(&vms), "vms", &vms)
        }
        VmCommand::Show { name } => {
            let vm = client.vm(&name).await.map_err(Failure::of_reading)?;
            Outcome::new(show::vm(&vm), "vm", &vm)
        }
        VmCommand::Start {
            name,
            discard_saved_state,
        } => {
            let request = StartRequest {
                discard_saved_state,
            };
            let started = client.start_vm_as(&name, &request).await;
            let vm = started.map_err(Failure::of_changing)?;
            let pid = vm
                .pid
                .map_or_else(String::new, |pid| format!(", process {pid}"));
            let mut said = format!("guest {name} runs{pid}\n");
            for note in &vm.notes {
                said.push_str(&format!("note: {note}\n"));
            }
            Outcome::new(said, "vm", &vm)
        }
        VmCommand::Suspend { name } => {
            let suspended = client.suspend_vm(&name).await;
            let vm = suspended.map_err(Failure::of_changing)?;
            let mut said = format!("guest {name} is suspended\n");
            for note in &vm.notes {
                said.push_str(&format!("note: {note}\n"));
            }
            Outcome::new(said, "vm", &vm)
        }
        VmCommand::Stop {
            name,
            force,
            timeout,
        } => {
            let request = StopRequest {
                force,
                timeout_s: (!force).then_some(timeout),
            };
            let vm = client
                .stop_vm(&name, &request)
                .await
                .map_err(Failure::of_changing)?;
            Outcome::new(format!("guest {name} has ended\n"), "vm", &vm)
        }
    }
}

/// `drover cancel …`
pub async fn cancel(agent: &Agent, what: &str) -> Result<Outcome, Failure> {
    let client = client(agent)?;
    let id = match what.parse::<MigrationId>() {
        Ok(id) => id,
        Err(_) => migration_of(&client, what).await?,
    };
    let view = client.cancel(id).await.map_err(Failure::of_changing)?;
    let text = format!(
        "guest {} is to stay on {}; migration {} to {} is {}\n",
        view.vm,
        view.source,
        view.id,
        view.destination,
        show::word(&view.phase)
    );
    Outcome::new(text, "migration", &view)
}

/// The migration of a guest that is under way.
pub async fn migration_of(client: &Client, what: &str) -> Result<MigrationId, Failure> {
    let name: VmName = what.parse().map_err(|_| {
        let message = format!("{what:?} is neither a migration's id nor a guest's name");
        Failure::new(exit::REFUSED, "no-such-migration", message)
            .next("`drover status` shows the migrations")
    })?;
    let migrations = client.migrations().await.map_err(Failure::of_changing)?;
    let open = |view: &&MigrationView| view.vm == name && !view.phase.has_ended();
    migrations
        .iter()
        .find(open)
        .map(|view| view.id)
        .ok_or_else(|| {
            let message = format!("guest {name} is not migrating");
            Failure::new(exit::REFUSED, "no-such-migration", message)
                .next("`drover status` shows the migrations")
        })
}
