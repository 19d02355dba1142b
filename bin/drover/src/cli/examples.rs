//! What the help of each command begins with.

pub const TOP: &str = "\
Examples:
  drover vm list                  the guests of this host
  drover vm start web             start one from /etc/drover/vms/web.toml
  drover migrate web --to b       move it to host b while it runs
  drover status                   guests, migrations and peers at a glance
  drover plan drain b             where the guests of host b would go, and why
  drover drain b                  move them there
  drover history web              how a guest moved, and what happened meanwhile
  drover cluster status           the hosts that trust each other
  drover recent                   the clusters that you used
  drover lab demo                 see it work, on this machine alone

";
pub const INVENTORY: &str = "\
Examples:
  drover inventory
  drover inventory --json | jq '.inventory.vms[] | {name, host, dirty_rate}'

";
pub const CHECKPOINTS: &str = "\
Examples:
  drover checkpoints
  drover checkpoints --remove web

";
pub const CORDON: &str = "\
Examples:
  drover cordon
  drover cordon --reason 'new memory on Friday'

";
pub const UNCORDON: &str = "\
Examples:
  drover uncordon

";
pub const VM: &str = "\
Examples:
  drover vm list
  drover vm start web
  drover vm stop web --force

";
pub const VM_LIST: &str = "\
Examples:
  drover vm list
  drover vm list --json | jq -r '.vms[] | select(.state == \"running\") | .name'

";
pub const VM_SHOW: &str = "\
Examples:
  drover vm show web
  drover vm show web --json | jq .vm.last_exit

";
pub const VM_START: &str = "\
Examples:
  drover vm start web
  drover vm start web --discard-saved-state    boot it, though it is suspended

";
pub const VM_SUSPEND: &str = "\
Examples:
  drover vm suspend web
  drover vm start web                 it goes on where it was

";
pub const VM_STOP: &str = "\
Examples:
  drover vm stop web                  press the power button, wait 90 s at most
  drover vm stop web --timeout 10
  drover vm stop web --force          pull the plug

";
pub const MIGRATE: &str = "\
Examples:
  drover migrate web --to b                        with a progress bar; Ctrl-C cancels
  drover migrate web --to b --downtime-limit 50    rather copy longer than stop longer
  drover migrate web --to b --detach               begin, and look later with drover status
  drover migrate web --to b --json                 one JSON document at the end

";
pub const STATUS: &str = "\
Examples:
  drover status
  drover status --json | jq '.migrations[0].phase'

";
pub const LIMIT: &str = "\
Examples:
  drover limit                              every limit, and what is carried under it
  drover limit 5gbit                        of all migrations of this host together
  drover limit --nic eth1 50%               of one interface
  drover limit --migration web 200mbit      of one that is under way
  drover limit --nic eth1 --clear           lift it again

";
pub const HISTORY: &str = "\
Examples:
  drover history                  every migration that this host remembers
  drover history web              those of a guest, and the events of the last one
  drover history 01938f2e-7b1c-7000-8000-2f8e9d3c4b5a
  drover history web --json | jq -r '.events[] | [.at, .text] | @tsv'

";
pub const CANCEL: &str = "\
Examples:
  drover cancel web
  drover cancel 01938f2e-7b1c-7000-8000-2f8e9d3c4b5a
  drover cancel --run                       the drain, resume or rebalance that is under way
  drover cancel --run --let-finish          but let guests that are moving arrive
  drover cancel --run --uncordon            and have its hosts take guests again

";
pub const HOST: &str = "\
Examples:
  drover host
  drover host --json | jq '.host.interfaces[] | {name, speed, up}'

";
pub const CLUSTER: &str = "\
Examples:
  drover cluster init                        on the first host
  drover cluster token                       there, once for each host that is to join
  drover cluster join drover1-AbC...         on that host
  drover cluster status                      who is in, and until when
  drover cluster remove b                    host b loses access at once
  drover cluster rotate                      a new certificate now, not in some weeks
  drover cluster operator eve -o eve.pem     for giving orders from another machine
  drover cluster coordinator b               there: b goes on with runs where that host is gone
  drover cluster leave                       on a host that is empty and shall be no member any more

";
pub const COMPLETIONS: &str = "\
Examples:
  drover completions bash > /etc/bash_completion.d/drover
  drover completions zsh > ~/.zfunc/_drover

";
