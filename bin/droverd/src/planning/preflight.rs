//! What domains of libvirt's need, asked of every host that could take them, before anything is planned.
//!
//! ```text
//!   domains, with what they need ─▶ asked: each thing once ─▶ all hosts, side by side ─▶ join: Vm::needs, Host::lacks, notes
//! ```
//! # Invariant
//! A host lacks what it says it lacks. What it does not know keeps no domain away: libvirt tells when the domain comes. Of files that a
//! domain writes to libvirt does not, so that who does not know of them lacks them. A host that does not answer takes none.

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER;
use drover_api::{
    DomainLack, DomainNeed, DomainNeedsRequest, DomainNeedsView, DomainView, ErrorCode,
    NewDisksRoom,
};
use drover_plan::Text;
use drover_plan::inventory::{DiskRoom, Disks, Host, HostState};
use drover_plan::limits::{LACKS, MEMORY, NEEDS, TEXT_CHARS};
use drover_types::{Bytes, HostName, VmName, in_short};
use sha2::{Digest as _, Sha256};

use super::gather::Gathered;
use crate::agent::Context;
use crate::libvirt;
use crate::limits::{DOMAIN_NEEDS_ASKED, HOST_NOTES};

/// What every domain needs.
const LIBVIRT: &str = "libvirt";

/// How much of a need's digest stands before one that is too long for a plan, in bytes.
const NEED_DIGEST_BYTES: usize = 8;

/// What a host answered, or why it did not.
type Told = (HostName, Result<DomainNeedsView, String>);

/// Asks, where there are domains that could move.
pub async fn ask(context: &Context, gathered: &mut Gathered) {
    if movable(gathered).next().is_none() {
        return;
    }
    let asked = asked(gathered);
    let own = &context.config.host;
    let hosts = gathered.inventory.hosts.iter();
    let heard = hosts.filter(|host| host.state != HostState::Unreachable);
    let others: Vec<_> = heard.map(|host| host.name.clone()).collect();
    let others = others.into_iter().filter(|host| host != own).collect();
    let request = DomainNeedsRequest {
        needs: asked.clone(),
    };
    let peers = &context.peers;
    let (here, there) = tokio::join!(
        libvirt::answer(context, &asked),
        peers.needs_of(others, &request)
    );
    let all = std::iter::once((own.clone(), here)).chain(there);
    let told = all.map(|(host, told)| {
        let told = told.map_err(|refusal| match refusal.code {
            ErrorCode::NoSuchRoute => {
                "its agent is of a version that moves none by a run".to_owned()
            }
            _ => Text::from(refusal.message).to_string(),
        });
        (host, told)
    });
    join(gathered, &asked, told.collect());
}

/// Domains that no agent moves now, and that may leave.
fn movable(gathered: &Gathered) -> impl Iterator<Item = &DomainView> {
    let vms = gathered.inventory.vms.iter();
    let free = vms.filter(|vm| vm.moving_to.is_none() && vm.blockers.is_empty());
    let free: BTreeSet<&VmName> = free.map(|vm| &vm.name).collect();
    let domains = gathered.domains.iter();
    domains.filter(move |domain| free.contains(&domain.vm))
}

/// All that domains need that could move, each once.
fn asked(gathered: &mut Gathered) -> Vec<DomainNeed> {
    let needs = movable(gathered).flat_map(|domain| &domain.needs);
    let all: BTreeSet<&DomainNeed> = needs.collect();
    let beyond = all.len().saturating_sub(DOMAIN_NEEDS_ASKED);
    let asked = all.into_iter().take(DOMAIN_NEEDS_ASKED).cloned().collect();
    if beyond > 0 {
        gathered.notes.push(format!(
            "of what libvirt's domains need {beyond} things are not looked for before they move: only {DOMAIN_NEEDS_ASKED} are"
        ));
    }
    asked
}

/// What each domain needs, with the host that it is on.
type Wanted<'a> = BTreeMap<&'a VmName, (&'a HostName, Vec<&'a DomainNeed>)>;

/// Puts what hosts answered into the inventory.
fn join(gathered: &mut Gathered, asked: &[DomainNeed], told: Vec<Told>) {
    let answers: BTreeMap<HostName, Result<Answer<'_>, String>> = told
        .into_iter()
        .map(|(host, told)| (host, told.map(|view| Answer::of(asked, view))))
        .collect();
    let vms = gathered.inventory.vms.iter();
    let at: BTreeMap<VmName, HostName> = vms.map(|vm| (vm.name.clone(), vm.host.clone())).collect();
    let mut wanted = Wanted::new();
    for domain in &gathered.domains {
        if let Some(host) = at.get(&domain.vm) {
            let own = answers.get(host).and_then(|answer| answer.as_ref().ok());
            wanted.insert(&domain.vm, (host, believed(&domain.needs, own)));
        }
    }
    for vm in &mut gathered.inventory.vms {
        // Whatever its host says of itself.
        vm.disks = None;
        if let Some((_, needs)) = wanted.get(&vm.name) {
            vm.disks = copied(needs);
            let needs = needs.iter().map(|need| words(need, &vm.name));
            vm.needs = needs.take(NEEDS - 1).collect();
            vm.needs.insert(Text::from(LIBVIRT.to_owned()));
        }
    }
    for host in &mut gathered.inventory.hosts {
        host.disks = DiskRoom::default();
        let notes = match answers.get(&host.name) {
            Some(Ok(answer)) => lacks(host, answer, &wanted),
            Some(Err(why)) => {
                let why = format!("did not tell whether it takes domains of libvirt's: {why}");
                let note = format!("{} {why}", host.name);
                takes_none(host, &why);
                vec![note]
            }
            None => Vec::new(),
        };
        gathered.notes.extend(notes);
    }
}

/// Without what the domain's own host is said to lack, though it runs there: who says so is not to be believed of others. That its
/// place is taken there is so, and what must be known is asked of others whatever its own host makes of it.
fn believed<'a>(needs: &'a [DomainNeed], own: Option<&Answer<'_>>) -> Vec<&'a DomainNeed> {
    let believed = needs.iter().filter(|need| {
        let is_vacancy = matches!(need, DomainNeed::Vacancy { .. });
        let is_asked = is_vacancy || need.must_be_known();
        is_asked || !own.is_some_and(|own| own.lacks.contains_key(need))
    });
    believed.collect()
}

fn takes_none(host: &mut Host, why: &str) {
    let why = Text::from(why.to_owned());
    host.lacks.insert(Text::from(LIBVIRT.to_owned()), why);
}

/// Puts down what a host lacks of what other hosts' domains need; what it does not know of that.
fn lacks(host: &mut Host, answer: &Answer<'_>, wanted: &Wanted<'_>) -> Vec<String> {
    if let Some(why) = &answer.takes_none {
        takes_none(host, why);
        return Vec::new();
    }
    let mut unknown: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let name = host.name.clone();
    let of_others = wanted.iter().filter(|(_, (at, _))| **at != name);
    let mut folders = Folders::default();
    for (vm, need) in
        of_others.flat_map(|(vm, (_, needs))| needs.iter().map(move |need| (vm, need)))
    {
        if let Some(why) = answer.is_without(need) {
            if host.lacks.len() + 1 >= LACKS {
                takes_none(host, "it lacks more things than are told apart");
                return Vec::new();
            }
            host.lacks.insert(words(need, vm), Text::from(why));
        } else if let Some(why) = answer.unknown.get(need) {
            unknown.entry(why).or_default().insert(need.to_string());
        }
        for room in answer.room.get(need).into_iter().flatten() {
            folders.add(&mut host.disks, vm, room);
        }
    }
    not_known(&name, unknown)
}

/// All disks of those that a domain takes along.
fn copied(needs: &[&DomainNeed]) -> Option<Disks> {
    let disks = needs.iter().find_map(|need| match need {
        DomainNeed::NewDisks { disks, .. } => Some(disks.iter()),
        _ => None,
    })?;
    // What another agent says of each is not to be added up beyond what is planned with.
    let sum = |bytes: &mut dyn Iterator<Item = Bytes>| {
        Bytes(bytes.fold(0, |sum, bytes| bytes.0.saturating_add(sum).min(MEMORY)))
    };
    Some(Disks {
        size: sum(&mut disks.clone().map(|disk| disk.size)),
        allocated: sum(&mut disks.map(|disk| disk.allocated)),
    })
}

/// The folder by which each file system of a host is called.
#[derive(Debug, Default)]
struct Folders(BTreeMap<u64, Text>);

impl Folders {
    /// Of room that is told twice the lesser counts.
    fn add(&mut self, disks: &mut DiskRoom, vm: &VmName, room: &NewDisksRoom) {
        let folder = || Text::from(room.folder.display().to_string());
        let folder = self.0.entry(room.device).or_insert_with(folder);
        let free = disks.free.entry(folder.clone()).or_insert(room.free);
        *free = room.free.min(*free);
        let wanted = disks.wanted.entry(vm.clone()).or_default();
        wanted.insert(folder.clone(), room.wanted);
    }
}

/// One note for each reason.
fn not_known(host: &HostName, unknown: BTreeMap<&str, BTreeSet<String>>) -> Vec<String> {
    let more = unknown.len().saturating_sub(HOST_NOTES);
    let notes = unknown.into_iter().take(HOST_NOTES).map(|(why, needs)| {
        let needs: Vec<_> = needs.into_iter().collect();
        // Another agent's words, to be shown on a terminal.
        let (needs, why) = (
            Text::from(in_short(needs.join(", "))),
            Text::from(why.to_owned()),
        );
        format!("whether {host} has {needs} is not known before a domain comes: {why}")
    });
    let more = (more > 0).then(|| {
        format!("for {more} more reasons it is not known before a domain comes what {host} has")
    });
    notes.chain(more).collect()
}

/// What a host answered, by what it was asked for.
struct Answer<'a> {
    takes_none: Option<String>,
    lacks: BTreeMap<&'a DomainNeed, String>,
    unknown: BTreeMap<&'a DomainNeed, String>,
    room: BTreeMap<&'a DomainNeed, Vec<NewDisksRoom>>,
}

impl<'a> Answer<'a> {
    /// Numbers beyond what was asked for are nobody's.
    fn of(asked: &'a [DomainNeed], view: DomainNeedsView) -> Self {
        let by_need = |lacks: Vec<DomainLack>| {
            let named = lacks.into_iter().filter_map(|lack| {
                let need = asked.get(usize::try_from(lack.need).ok()?)?;
                Some((need, lack.why))
            });
            named.collect()
        };
        let mut room: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for one in view.room {
            let need = usize::try_from(one.need).ok();
            if let Some(need) = need.and_then(|need| asked.get(need)) {
                room.entry(need).or_default().push(one);
            }
        }
        Self {
            room,
            takes_none: view.takes_none,
            lacks: by_need(view.lacks),
            unknown: by_need(view.unknown),
        }
    }

    /// Why no domain goes there that needs this; none where nothing is known against it.
    fn is_without(&self, need: &DomainNeed) -> Option<String> {
        let unknown = self.unknown.get(need).filter(|_| need.must_be_known());
        let unknown = unknown.map(|why| format!("whether it has {need} is not known: {why}"));
        let told = self.lacks.get(need).cloned().or(unknown);
        told.or_else(|| {
            let is_room = matches!(need, DomainNeed::NewDisks { .. });
            let untold = is_room && !self.room.contains_key(need);
            untold.then(|| format!("its agent does not tell how much {need} it has: bring it to the version of the one that plans"))
        })
    }
}

/// What one domain needs, told apart from all else that is needed: of two processors with one model each may have other features, of two
/// files by one path each may be another, and of long texts plans keep the beginning.
fn words(need: &DomainNeed, vm: &VmName) -> Text {
    let words = match need {
        DomainNeed::Processor { .. }
        | DomainNeed::SameFile { .. }
        | DomainNeed::NewDisks { .. } => {
            format!("{need} as {vm} has it")
        }
        _ => need.to_string(),
    };
    if words.chars().count() <= TEXT_CHARS {
        return Text::from(words);
    }
    let digest = HEXLOWER.encode(&Sha256::digest(&words)[..NEED_DIGEST_BYTES]);
    Text::from(format!("{digest} {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planning::tests::{guest, view};
    use drover_api::FileSeen;
    use drover_plan::inventory::Vm;

    fn network(name: &str) -> DomainNeed {
        DomainNeed::Network {
            name: name.to_owned(),
        }
    }

    /// A domain `web` on a that needs these, beside hosts b, c and d.
    fn gathered(needs: &[DomainNeed]) -> Gathered {
        let mut gathered = Gathered::default();
        let hosts = ["a", "b", "c", "d"].map(|host| view(host, &[]).host);
        gathered.inventory.hosts = hosts.into();
        gathered.inventory.vms = vec![Vm {
            called: Some(Text::from("libvirt's".to_owned())),
            ..guest("a", None)
        }];
        gathered.domains = vec![DomainView {
            vm: "web".parse().unwrap(),
            uuid: "7".to_owned(),
            name: "web".to_owned(),
            needs: needs.to_vec(),
        }];
        gathered
    }

    fn lacks(need: u32) -> DomainNeedsView {
        DomainNeedsView {
            lacks: vec![DomainLack {
                need,
                why: "it is not there".to_owned(),
            }],
            ..DomainNeedsView::default()
        }
    }

    fn shown(gathered: &Gathered) -> Vec<Vec<(&str, &str)>> {
        let hosts = gathered.inventory.hosts.iter();
        let shown = hosts.map(|host| {
            let lacks = host.lacks.iter();
            lacks
                .map(|(need, why)| (need.as_str(), why.as_str()))
                .collect()
        });
        shown.collect()
    }

    #[test]
    fn what_each_host_lacks_is_joined_and_who_is_silent_or_has_no_libvirt_takes_none() {
        let mut gathered = gathered(&[network("lan"), network("dmz")]);
        let asked = asked(&mut gathered);
        assert_eq!(
            asked,
            [network("dmz"), network("lan")],
            "each once, in order"
        );
        let host = |name: &str| name.parse::<HostName>().unwrap();
        let none = DomainNeedsView {
            takes_none: Some("it has no libvirt".to_owned()),
            ..DomainNeedsView::default()
        };
        let told = vec![
            (host("a"), Ok(DomainNeedsView::default())),
            (host("b"), Ok(lacks(1))),
            (host("c"), Ok(none)),
            (host("d"), Err("no answer".to_owned())),
        ];
        join(&mut gathered, &asked, told);
        let silent = "did not tell whether it takes domains of libvirt's: no answer";
        let expected = [
            vec![],
            vec![("libvirt's network \"lan\"", "it is not there")],
            vec![("libvirt", "it has no libvirt")],
            vec![("libvirt", silent)],
        ];
        assert_eq!(shown(&gathered), expected);
        let needs = &gathered.inventory.vms[0].needs;
        let needs: Vec<_> = needs.iter().map(Text::as_str).collect();
        let expected = [
            "libvirt",
            "libvirt's network \"dmz\"",
            "libvirt's network \"lan\"",
        ];
        assert_eq!(needs, expected);
        assert_eq!(gathered.notes, [format!("d {silent}")]);
    }

    #[test]
    fn what_its_own_host_is_said_to_lack_is_believed_of_none_and_what_is_not_known_is_noted() {
        let vacancy = DomainNeed::Vacancy {
            name: "web".to_owned(),
            uuid: "7".to_owned(),
        };
        let mut gathered = gathered(&[network("lan"), vacancy]);
        let asked = asked(&mut gathered);
        let host = |name: &str| name.parse::<HostName>().unwrap();
        let mut both = lacks(0);
        both.lacks.extend(lacks(1).lacks);
        let unknown = DomainNeedsView {
            unknown: both.lacks.clone(),
            ..DomainNeedsView::default()
        };
        // Nobody is asked for what nobody asked.
        let told = vec![
            (host("a"), Ok(both.clone())),
            (host("b"), Ok(both)),
            (host("c"), Ok(unknown)),
            (host("d"), Ok(lacks(9))),
        ];
        join(&mut gathered, &asked, told);
        let vacant = ("no domain \"web\" (7)", "it is not there");
        assert_eq!(shown(&gathered), [vec![], vec![vacant], vec![], vec![]]);
        let [note] = &gathered.notes[..] else {
            panic!("{:?}", gathered.notes);
        };
        assert!(note.starts_with("whether c has no domain"), "{note}");
    }

    #[test]
    fn a_host_that_does_not_know_of_a_file_that_is_written_to_takes_no_domain_of_it() {
        let seen = FileSeen {
            file_system: "fuse.sshfs".to_owned(),
            fsid: None,
            server: None,
            inode: Some(12),
        };
        let path = "/images/web.img".into();
        let mut gathered = gathered(&[DomainNeed::SameFile { path, seen }]);
        let asked = asked(&mut gathered);
        let host = |name: &str| name.parse::<HostName>().unwrap();
        // As the version before answers what it does not know.
        let older = DomainNeedsView {
            unknown: lacks(0).lacks,
            ..DomainNeedsView::default()
        };
        let told = vec![
            // Its own host cannot tell either whether another one's would be the same.
            (host("a"), Ok(lacks(0))),
            (host("b"), Ok(older)),
            (host("c"), Ok(lacks(0))),
            (host("d"), Ok(DomainNeedsView::default())),
        ];
        join(&mut gathered, &asked, told);
        let words = "the same /images/web.img as web has it";
        let unknown = "whether it has the same /images/web.img is not known: it is not there";
        let expected = [
            vec![],
            vec![(words, unknown)],
            vec![(words, "it is not there")],
            vec![],
        ];
        assert_eq!(shown(&gathered), expected);
        assert_eq!(gathered.notes, [""; 0]);
    }

    #[test]
    fn room_for_new_disks_is_joined_by_file_system_and_who_does_not_tell_it_takes_none() {
        let disk = |target: &str, path: &str| drover_api::NewDisk {
            target: target.to_owned(),
            path: path.into(),
            layout: drover_api::DiskLayout::Raw,
            size: Bytes(64),
            allocated: Bytes(5),
            inode: 1,
            user: 0,
            group: 0,
            mode: 0o600,
        };
        let disks = vec![disk("vda", "/images/web.img"), disk("vdb", "/images/b.img")];
        let uuid = "7".to_owned();
        let mut gathered = gathered(&[DomainNeed::NewDisks { uuid, disks }]);
        let asked = asked(&mut gathered);
        let host = |name: &str| name.parse::<HostName>().unwrap();
        let room = |device, folder: &str, free| NewDisksRoom {
            need: 0,
            device,
            folder: folder.into(),
            wanted: Bytes(128),
            free: Bytes(free),
        };
        let telling = |room| DomainNeedsView {
            room,
            ..DomainNeedsView::default()
        };
        let told = vec![
            (host("a"), Ok(DomainNeedsView::default())),
            (
                host("b"),
                Ok(telling(vec![
                    room(3, "/images", 200),
                    room(3, "/more", 199),
                ])),
            ),
            (host("c"), Ok(lacks(0))),
            // As the version before answers.
            (host("d"), Ok(DomainNeedsView::default())),
        ];
        join(&mut gathered, &asked, told);
        let disks = gathered.inventory.vms[0].disks.unwrap();
        assert_eq!((disks.size, disks.allocated), (Bytes(128), Bytes(10)));
        let images = Text::from("/images".to_owned());
        let there = &gathered.inventory.hosts[1].disks;
        assert_eq!(there.free, [(images.clone(), Bytes(199))].into());
        let wanted = [(images, Bytes(128))].into();
        assert_eq!(there.wanted, [("web".parse().unwrap(), wanted)].into());
        let shown = shown(&gathered);
        assert_eq!((shown[0].len(), shown[1].len()), (0, 0));
        assert_eq!(shown[2][0].1, "it is not there");
        assert!(
            shown[3][0]
                .1
                .contains("does not tell how much room for disks")
        );
    }

    #[test]
    fn needs_that_are_too_long_for_a_plan_are_told_apart() {
        let at = |end: char| DomainNeed::Path {
            path: format!("/{}{end}", "x".repeat(TEXT_CHARS)).into(),
        };
        let of = |end| words(&at(end), &"web".parse().unwrap());
        assert_ne!(of('a'), of('b'));
        assert_eq!(of('a'), of('a'));
    }

    #[test]
    fn another_agents_reasons_are_bounded_and_harmless_on_a_terminal() {
        let names: Vec<_> = (0..2 * HOST_NOTES)
            .map(|number| network(&number.to_string()))
            .collect();
        let mut gathered = gathered(&names);
        let asked = asked(&mut gathered);
        let unknown = |need: u32| DomainLack {
            need,
            why: format!("\u{1b}[2J{need}"),
        };
        let told = DomainNeedsView {
            unknown: (0..64).map(unknown).collect(),
            ..DomainNeedsView::default()
        };
        let own = ("a".parse().unwrap(), Ok(DomainNeedsView::default()));
        join(
            &mut gathered,
            &asked,
            vec![own, ("b".parse().unwrap(), Ok(told))],
        );
        assert_eq!(gathered.notes.len(), HOST_NOTES + 1);
        let last = gathered.notes.last().unwrap();
        assert!(last.starts_with("for 32 more reasons"), "{last}");
        assert!(!gathered.notes.iter().any(|note| note.contains('\u{1b}')));
    }

    #[test]
    fn processors_of_one_model_are_told_apart_by_the_domain() {
        let machine = drover_api::DomainMachine {
            machine: "q35".to_owned(),
            domain_type: "kvm".to_owned(),
            emulator: None,
            arch: None,
        };
        let processor = DomainNeed::Processor {
            machine,
            model: Some("EPYC".to_owned()),
            xml: "<cpu/>".to_owned(),
        };
        let of = |vm: &str| words(&processor, &vm.parse().unwrap());
        assert_ne!(of("web"), of("db"));
    }
}
