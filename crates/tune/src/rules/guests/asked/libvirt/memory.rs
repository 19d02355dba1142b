//! A domain's `<memoryBacking>`.

use super::super::{Backend, MemoryWritten};
use super::{beside, made};
use crate::domain::{changed, size};
use crate::facts::{Domain, Element, Guest};
use crate::finding::{Because, Line};

/// What libvirt takes where huge pages are asked for and no size is named, on most hosts.
const USUAL_HUGE: u64 = 2 << 20;

/// Pages of this size are as all others, also where they are called huge.
const SMALL: u64 = 4 << 10;

/// All of its memory is of one kind, unless pages are told for parts of it.
pub fn backends<'g>(guest: &Guest, domain: &'g Domain) -> Result<Vec<Backend<'g>>, Because> {
    let next = domain.next.get()?.part("memoryBacking");
    let made = made(guest, domain)?;
    let is_memory = |arg: &str| arg == "-mem-path" || arg.contains("memory-backend-");
    if beside(made).any(is_memory) {
        return Err("its memory is in QEMU's arguments that libvirt knows nothing of".into());
    }
    let backing = made.part("memoryBacking");
    let hugepages = backing.and_then(|backing| backing.part("hugepages"));
    let cells: Vec<&Element> = cells(made).collect();
    let huge = hugepages.map(|pages| page(pages, cells.len()));
    let huge = huge.transpose()?;
    let huge = huge.filter(|size| *size > SMALL);
    let said = |name: &str, attribute: &str| backing?.at(name, attribute);
    let source = said("source", "type");
    let access = access(said("access", "mode"), &cells)?;
    let is_memfd = source == Some("memfd");
    // With an access that is said it becomes a file as well (`qemuBuildMemoryBackendProps`).
    let is_file = source == Some("file") || access.is_some();
    let threads = said("allocation", "threads").and_then(|threads| threads.parse().ok());
    Ok(vec![Backend {
        bytes: guest.memory.0,
        huge,
        shared: match access {
            Some(mode) => mode == "shared",
            None => is_memfd,
        },
        in_file: huge.is_none() && !is_memfd && is_file,
        filled: huge.is_some() || said("allocation", "mode") == Some("immediate"),
        threads,
        written: MemoryWritten::Libvirt {
            next,
            vcpus: guest.vcpus,
        },
    }])
}

/// The NUMA nodes that it is told of.
fn cells(domain: &Element) -> impl Iterator<Item = &Element> {
    let numa = domain.part("cpu").and_then(|cpu| cpu.part("numa"));
    numa.into_iter().flat_map(|numa| numa.all("cell"))
}

/// Who shares it: what a node says of its part counts before what is said of all.
fn access<'e>(of_all: Option<&'e str>, cells: &[&'e Element]) -> Result<Option<&'e str>, Because> {
    let mut each = cells.iter().map(|cell| cell.get("memAccess").or(of_all));
    let first = each.next().unwrap_or(of_all);
    match each.all(|other| other == first) {
        true => Ok(first),
        false => Err("parts of its memory are shared, and others are not".into()),
    }
}

/// The size of its huge pages. One size for node 0 is one for all where there is no other node.
fn page(hugepages: &Element, cells: usize) -> Result<u64, Because> {
    let is_all = |nodes: &str| nodes == "0" && cells < 2;
    let mut pages = hugepages.all("page");
    match (pages.next(), pages.next()) {
        (None, _) => Ok(USUAL_HUGE),
        (Some(page), None) if page.get("nodeset").is_none_or(is_all) => {
            let number = page.get("size").unwrap_or_default();
            size(number, page.get("unit")).map_err(Because)
        }
        _ => Err("parts of its memory have pages of their own".into()),
    }
}

/// None where what is next is filled by as many already, or not beforehand.
pub fn with_threads(next: Option<&Element>, threads: u32, vcpus: u32) -> Vec<Line> {
    let Some(next) = next else {
        return Vec::new();
    };
    let is_filled =
        next.part("hugepages").is_some() || next.at("allocation", "mode") == Some("immediate");
    let has = next.number_at("allocation", "threads").unwrap_or(vcpus);
    if !is_filled || has >= threads {
        return Vec::new();
    }
    let named = Element::named("allocation");
    let allocation = next.part("allocation").unwrap_or(&named);
    let allocation = allocation.with("mode", "immediate");
    let allocation = allocation.with("threads", &threads.to_string());
    changed(Some(next), &next.with_part(allocation))
}

/// None where what is next has huge pages already, of whichever size.
pub fn with_huge_pages(next: Option<&Element>) -> Vec<Line> {
    if next.is_some_and(|next| next.part("hugepages").is_some()) {
        return Vec::new();
    }
    let page = Element::named("page")
        .with("size", "2048")
        .with("unit", "KiB");
    let named = Element::named("memoryBacking");
    let old = next.unwrap_or(&named);
    let parts = old.parts.iter().filter_map(beside_huge_pages);
    let new = Element {
        parts: parts.collect(),
        ..old.clone()
    };
    changed(
        next,
        &new.with_part(Element::named("hugepages").with_part(page)),
    )
}

/// A part as libvirt takes it with huge pages (`qemuValidateDomainDefMemory`); none where it takes none.
fn beside_huge_pages(part: &Element) -> Option<Element> {
    match part.name.as_str() {
        "source" if part.get("type") == Some("anonymous") => None,
        "allocation" if part.get("mode") == Some("ondemand") => {
            let part = part.without("mode");
            (!part.attributes.is_empty()).then_some(part)
        }
        _ => Some(part.clone()),
    }
}
