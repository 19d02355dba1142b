//! The definition of a guest: what is in its file, and what travels with it.

use std::path::PathBuf;

use drover_plan::invalid;
use drover_plan::policy::VmPolicy;
use drover_types::{Bytes, Convergence, VmName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits;

/// The QEMU that a definition without `qemu` means.
pub const DEFAULT_QEMU: &str = "/usr/bin/qemu-system-x86_64";

/// The definition of one guest, `NAME.toml` in the agent's directory of definitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VmDefinition {
    /// The guest's name; the same as the file's.
    #[schema(value_type = String)]
    pub name: VmName,
    /// Memory of the guest, `-m`.
    #[schema(value_type = u64)]
    pub memory: Bytes,
    /// Virtual CPUs, `-smp`.
    #[serde(default = "one")]
    pub vcpus: u32,
    /// The QEMU binary, an absolute path.
    #[serde(default = "default_qemu")]
    #[schema(value_type = String)]
    pub qemu: PathBuf,
    /// The machine type with its options, `-machine`; QEMU's default when it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Further arguments of QEMU, as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// How its migrations are brought to their end; what is missing is as the source's agent has it.
    #[serde(default, skip_serializing_if = "Convergence::is_silent")]
    #[schema(value_type = Object)]
    pub convergence: Convergence,
    /// Whether hosts may keep its pages: those that it leaves for its return, where they keep any (`[checkpoints]` of their agents), and those
    /// where it arrives for others (`migration.shared_pages_memory`).
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub checkpoint: bool,
    /// What plans must keep to: where it may be, with which guests, and what to do where it cannot move.
    #[serde(default, skip_serializing_if = "is_silent")]
    #[schema(value_type = Object)]
    pub policy: VmPolicy,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_yes(checkpoint: &bool) -> bool {
    *checkpoint
}

fn is_silent(policy: &VmPolicy) -> bool {
    *policy == VmPolicy::default()
}

fn one() -> u32 {
    1
}

fn default_qemu() -> PathBuf {
    DEFAULT_QEMU.into()
}

/// A definition with a value that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("key `{key}`: {problem}")]
pub struct InvalidDefinition {
    /// The key at fault.
    pub key: &'static str,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

/// Options that the agent itself gives to QEMU, with the key that sets them.
const OWN_OPTIONS: [(&str, &str); 9] = [
    ("-name", "use the key `name`"),
    ("-m", "use the key `memory`"),
    ("-smp", "use the key `vcpus`"),
    ("-machine", "use the key `machine`"),
    ("-M", "use the key `machine`"),
    ("-incoming", "the agent sets it for a guest that arrives"),
    ("-S", "the agent sets it for a guest that arrives"),
    (
        "-daemonize",
        "the agent watches the process that it started",
    ),
    ("-pidfile", "the agent keeps the process id itself"),
];

impl VmDefinition {
    /// Checks what the types cannot: ranges, and arguments that would contradict the agent.
    ///
    /// # Errors
    /// The first key whose value cannot be used.
    pub fn check(&self) -> Result<(), InvalidDefinition> {
        let fail = |key, problem: String| Err(InvalidDefinition { key, problem });
        if !(1 << 20..=limits::MEMORY_BYTES).contains(&self.memory.0) {
            return fail(
                "memory",
                format!("{} is not between 1 MiB and 64 TiB", self.memory),
            );
        }
        if !self.memory.0.is_multiple_of(1 << 20) {
            return fail(
                "memory",
                format!("{} bytes are no whole MiB", self.memory.0),
            );
        }
        if !(1..=limits::VCPUS).contains(&self.vcpus) {
            let problem = format!("{} is not between 1 and {}", self.vcpus, limits::VCPUS);
            return fail("vcpus", problem);
        }
        if !self.qemu.is_absolute() {
            return fail(
                "qemu",
                format!("{} is no absolute path", self.qemu.display()),
            );
        }
        let machine = self.machine.as_deref().unwrap_or("x");
        if machine.is_empty() || machine.starts_with('-') || has_nul(machine) {
            return fail(
                "machine",
                format!("{machine:?} is no machine type, such as \"q35\""),
            );
        }
        invalid::check_vm_policy(&self.name, &self.policy)
            .or_else(|problem| fail("policy", problem.to_string()))?;
        self.check_args()
    }

    /// The same with what is only wished for it, and no part of its process, as its file has it now.
    #[must_use]
    pub fn with_wishes_of(self, file: &Self) -> Self {
        Self {
            convergence: file.convergence,
            checkpoint: file.checkpoint,
            policy: file.policy.clone(),
            ..self
        }
    }

    fn check_args(&self) -> Result<(), InvalidDefinition> {
        let fail = |problem: String| {
            Err(InvalidDefinition {
                key: "args",
                problem,
            })
        };
        if self.args.len() > limits::ARGS {
            return fail(format!(
                "{} arguments, more than {}",
                self.args.len(),
                limits::ARGS
            ));
        }
        for arg in &self.args {
            if arg.len() > limits::ARG_BYTES || has_nul(arg) {
                let shown: String = arg.chars().take(40).collect();
                return fail(format!(
                    "the argument that begins with {shown:?} is longer than {} bytes or has a \
                     zero byte",
                    limits::ARG_BYTES
                ));
            }
            // QEMU takes one dash or two.
            let plain = arg
                .strip_prefix('-')
                .filter(|a| a.starts_with('-'))
                .unwrap_or(arg);
            if let Some((option, instead)) = OWN_OPTIONS.iter().find(|(own, _)| *own == plain) {
                return fail(format!("{option} cannot be given here: {instead}"));
            }
        }
        Ok(())
    }
}

fn has_nul(text: &str) -> bool {
    text.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> VmDefinition {
        serde_json::from_str(r#"{"name":"web1","memory":"1GiB"}"#).unwrap()
    }

    #[test]
    fn a_definition_needs_only_a_name_and_memory() {
        let definition = definition();
        assert_eq!(definition.check(), Ok(()));
        assert_eq!(definition.qemu, PathBuf::from(DEFAULT_QEMU));
        assert_eq!(definition.vcpus, 1);
    }

    #[test]
    fn values_that_qemu_could_not_take_are_refused_by_key() {
        type Spoil = fn(&mut VmDefinition);
        let bad: [(&str, Spoil); 7] = [
            ("memory", |d| d.memory = Bytes(0)),
            ("memory", |d| d.memory = Bytes((1 << 30) + 1)),
            ("vcpus", |d| d.vcpus = 0),
            ("qemu", |d| d.qemu = "qemu".into()),
            ("machine", |d| d.machine = Some("-S".into())),
            ("args", |d| d.args = vec![String::new(); 1000]),
            ("args", |d| d.args = vec!["a\0b".into()]),
        ];
        for (key, spoil) in bad {
            let mut definition = definition();
            spoil(&mut definition);
            assert_eq!(definition.check().map_err(|e| e.key), Err(key));
        }
    }

    #[test]
    fn arguments_that_the_agent_sets_itself_are_refused_with_the_key_to_use() {
        for arg in ["-m", "--m", "-incoming", "-daemonize", "--machine"] {
            let mut definition = definition();
            definition.args = vec![arg.into()];
            let refused = definition.check().unwrap_err().to_string();
            assert!(refused.contains("cannot be given here"), "{arg}: {refused}");
        }
    }

    #[test]
    fn a_policy_is_read_checked_and_left_out_where_it_says_nothing() {
        let plain = serde_json::to_string(&definition()).unwrap();
        assert!(!plain.contains("policy"), "{plain}");
        let text = r#"{"name":"web1","memory":"1GiB","policy":{"pinned":{"hosts":["a"]},
            "apart":[{"group":"web"}],"cannot_move":"skip","priority":7}}"#;
        let read: VmDefinition = serde_json::from_str(text).unwrap();
        assert_eq!(read.check(), Ok(()));
        let again = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<VmDefinition>(&again).unwrap(), read);
        let twice = text.replace("{\"group\":\"web\"}", "{\"group\":\"w\"},{\"group\":\"w\"}");
        let bad: VmDefinition = serde_json::from_str(&twice).unwrap();
        let refused = bad.check().unwrap_err().to_string();
        assert!(
            refused.starts_with("key `policy`: web1 names a group twice"),
            "{refused}"
        );
        for (bad, words) in [
            (
                text.replace("skip", "panic"),
                "unknown variant `panic`, expected one of `block`",
            ),
            (
                text.replace("pinned", "nailed"),
                "unknown field `nailed`, expected one of `together`",
            ),
        ] {
            let refused = serde_json::from_str::<VmDefinition>(&bad).unwrap_err();
            assert!(refused.to_string().contains(words), "{refused}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused() {
        let text = r#"{"name":"web1","memory":"1GiB","cpus":2}"#;
        let refused = serde_json::from_str::<VmDefinition>(text)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("unknown field `cpus`"), "{refused}");
    }
}
