//! An adapter with data centre bridging, as QEMU emulates none: a driver of ours in Debian's kernel (`drover_dcb.c`), which
//! `scripts/setup --for-tests` builds. What the kernel's dcbnl does is real, and no hardware is behind it.
//!
//! ```text
//!   dcb0 ────────── dcb1     each tells of its peer what the other one has set
//!   this host       far
//! ```

use std::fs;

use drover_lab::emulated::cache;

use crate::here::{Until, afresh, far, ip, sh};

/// Its end on this host.
pub const DCB: &str = "dcb0";

const MODULE: &str = "drover_dcb";
const SOURCE: &str = include_str!("drover_dcb.c");

/// Has it be there, with an address at each end, and all other adapters afresh. It is gone with what comes back; none, and said so, where
/// it was not built.
pub fn bridged() -> Option<Until> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let folder = cache().join(format!("dcb-adapter-{}", release.trim()));
    let built_of = fs::read_to_string(folder.join(format!("{MODULE}.c")));
    if built_of.ok().as_deref() != Some(SOURCE) {
        println!(
            "\nskipped, because {MODULE} of this source is not in {}: run scripts/setup --for-tests",
            folder.display()
        );
        return None;
    }
    afresh();
    sh(&format!("busybox insmod {}/{MODULE}.ko", folder.display()));
    let adapter = Until("busybox rmmod drover_dcb");
    // Addresses that a link gets by itself come after a while.
    sh(&format!(
        "echo 1 >/proc/sys/net/ipv6/conf/{DCB}/disable_ipv6"
    ));
    ip(&[
        "link set dev dcb1 netns far",
        "addr add 10.9.8.1/24 dev dcb0",
        "link set dev dcb0 up",
    ]);
    far(&["addr add 10.9.8.2/24 dev dcb1", "link set dev dcb1 up"]);
    Some(adapter)
}

/// Has `dcb` set something of this end.
pub fn near_dcb(object: &str, words: &str) {
    dcb_sets(&format!("dcb {object} set dev {DCB} {words}"));
}

/// The same of the other end.
pub fn far_dcb(object: &str, words: &str) {
    dcb_sets(&format!("dcb -n far {object} set dev dcb1 {words}"));
}

/// Once more where `dcb` was given an answer with another number than its question's, which libmnl calls EPROTO: neither the kernel's dcbnl nor
/// the driver knows that word. Seen once, on a busy machine; what is set is set as a whole, so again is the same.
fn dcb_sets(line: &str) {
    sh(&format!(
        "said=$({line} 2>&1) && exit; echo \"$said\" >&2; case $said in *'Protocol error'*) {line};; *) exit 1;; esac"
    ));
}
