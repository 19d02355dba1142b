//! Every bound of the planner, each with its reason.

use std::time::Duration;

/// Hosts in one inventory: the 1000 that are simulated in waves, twice over.
pub const HOSTS: usize = 2_000;

/// VMs in one inventory: 25 on each of [`HOSTS`] hosts.
pub const VMS: usize = 50_000;

/// Hosts that VMs avoid, of all VMs together: two failed moves of each of [`VMS`].
pub const AVOIDED: usize = 2 * VMS;

/// Characters of a label, a group, a CPU model or a CPU feature. The longest names of QEMU have some
/// 30; Kubernetes allows 63 for a label.
pub const WORD_CHARS: usize = 63;

/// Characters of a hypervisor's reason why a guest cannot be migrated: a few lines.
pub const TEXT_CHARS: usize = 400;

/// Lines of what is told in several: a refusal that names some guests, each with its hosts, and what to do next.
pub const ACCOUNT_LINES: usize = 60;

/// Labels of one host, labels and hosts that one VM is pinned to.
pub const LABELS: usize = 64;

/// CPU features of one host or guest, and named models of one host: QEMU 10 knows some 330 features
/// and 130 models with their versions on x86.
pub const FEATURES: usize = 1_024;

/// Groups that one VM belongs to, of each kind.
pub const GROUPS: usize = 16;

/// Things that one VM needs a host to have: a domain of libvirt's has some ten disks, cards and secrets, and files below its disks. Its
/// agent tells of 256, and of three more that each needs.
pub const NEEDS: usize = 512;

/// Things that one host lacks: all that ten VMs of the largest kind could need.
pub const LACKS: usize = 10 * NEEDS;

/// Reasons of the hypervisor why one guest cannot be migrated.
pub const BLOCKERS: usize = 16;

/// Migrations at once, of one host and direction, or of the cluster. A host with more would give each
/// less than 1/64 of its line.
pub const AT_ONCE: u32 = 64;

/// Migrations at once in the whole cluster: [`AT_ONCE`] on each of 64 hosts, or two, which is the default, on
/// each of [`HOSTS`] and more. A coordinator asks after each four times a second.
pub const AT_ONCE_IN_CLUSTER: u32 = 4_096;

/// The highest priority of a VM.
pub const PRIORITY: u8 = 100;

/// How long a guest is given to shut down unless its policy says otherwise, in seconds: as `drover vm stop`
/// gives it.
pub const STOP_SECONDS: u32 = 90;

/// The longest that a guest may be given to shut down, in seconds: a large database that writes its memory out.
pub const STOP_SECONDS_MOST: u32 = 3600;

/// vCPUs per 100 CPUs: 64 on each is more than hosts are sold with.
pub const OVERCOMMIT_PERCENT: u32 = 6_400;

/// Memory or bytes of one fact: 1 EiB. Sums over [`VMS`] of them are kept from overflowing by
/// saturating.
pub const MEMORY: u64 = 1 << 60;

/// CPUs of a host, vCPUs of a guest: as many as the set of CPUs in `drover-types` can name.
pub const CPUS: u32 = drover_types::limits::CPUS;

/// How many losses of hosts or failure domains may be asked for. More than three is a cluster for
/// another kind of planning: the sets to be tried grow with the power of it.
pub const LOSSES: u32 = 3;

/// Sets of lost hosts that are tried. All pairs of 500 hosts are 124,750; each takes some 10 us.
pub const LOSS_SETS: u64 = 130_000;

/// Guests that are asked to make room, one after another, for one that finds none. Each step
/// multiplies the tries by the hosts and their guests; what is deeper is rarely wanted, since each
/// changes another guest's place.
pub const EJECTIONS: usize = 3;

/// Places that are tried while looking for room by ejections, for a whole plan: each some 0.5 us.
pub const EJECTION_TRIES: usize = 400_000;

/// Places that are tried while improving a placement, each with one look at all hosts: at 500 hosts
/// some 2 us each.
pub const IMPROVEMENT_TRIES: usize = 200_000;

/// Partial placements that the search for the best looks at. It ends by itself for some 8 guests and
/// 6 hosts; each takes some 1 us.
pub const SEARCH_NODES: usize = 300_000;

/// Guests up to which the best placement is searched for: with more, [`SEARCH_NODES`] are spent in one
/// corner of the tree.
pub const SEARCH_UNITS: usize = 16;

/// Moves of one rebalancing: as much as one evening carries, and the bound of its time to plan.
pub const REBALANCE_MOVES: u32 = 1_000;

/// Guests without a place of which each refusing host is named; of further ones only how many hosts.
/// 200 times [`HOSTS`] names are some 16 MiB.
pub const NAMED_UNMOVED: usize = 200;

/// Longest time that is expected of one guest or plan; longer is no prediction.
pub const FARTHEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// What a migration carries of its lines, in percent: rather, at worst, at best. Measured with two
/// NICs: 84 to 99 (docs/measurements/session.md).
pub const LINE_PERCENT: [u64; 3] = [95, 84, 99];

/// Least share of what a migration could have at most with which it is started: less makes it long,
/// and what it dirties is sent again more often.
pub const LEAST_SHARE_PERCENT: u64 = 25;

/// Time from one migration's order until its bytes flow: a QEMU starts at the destination in 0.1 to
/// 3 s (`drover-migrate`, `PREPARE`).
pub const PREPARING: Duration = Duration::from_millis(500);

/// Sets of lost hosts that are tried to say that more than the policy wants could be lost: for that
/// nobody waits longer than some 0.2 s. All pairs of 200 hosts are 19,900.
pub const EXTRA_LOSS_SETS: u64 = 20_000;

/// A single move of a rebalancing takes away at least this part of the imbalance that there was: one
/// in a thousand. Less is moved for nothing.
pub const LEAST_MOVE_GAIN: u64 = 1_000;

/// Fullest hosts whose guests, and emptiest hosts whose room, are looked at for one move of a
/// rebalancing: of a pair further from the ends there is less to gain.
pub const REBALANCE_ENDS: usize = 16;

/// How often guests are placed anew beside those that were found to stay. What is left in conflict after
/// that stays as well: each round places all, and the second one has rarely been needed.
pub const SETTLING_ROUNDS: u32 = 6;

/// Partial placements that regrouping looks at for a whole plan, each some 1 us at 500 hosts.
pub const REGROUP_NODES: usize = 400_000;

/// Of them for one pair of hosts: all ways to divide [`REGROUP_UNITS`] guests of each among two hosts.
pub const REGROUP_TRY: usize = 1 << (2 * REGROUP_UNITS);

/// The largest guests of each of the two hosts that are placed anew.
pub const REGROUP_UNITS: usize = 7;

/// Hosts with the least to receive that they may go to as well.
pub const REGROUP_HOSTS: usize = 4;
