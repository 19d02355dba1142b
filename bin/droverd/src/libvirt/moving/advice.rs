//! What to do where libvirt refuses to migrate a domain, by the number of its error: its words are for people, and translated.

use std::ffi::c_int;

use drover_libvirt::Refusal;

/// That of a refusal, where something can be done that its words do not say.
pub fn advice(refusal: &Refusal) -> Option<&'static str> {
    // Not translated, as it is a name.
    if refusal.words.contains("VIR_MIGRATE_TLS") {
        return Some(
            "set `migrate_tls_force = 0` in /etc/libvirt/qemu.conf on both hosts and restart libvirtd: what the agents carry is encrypted by \
             them, always",
        );
    }
    by_number(refusal.code)
}

/// By `virErrorNumber` of libvirt's `virterror.h`.
fn by_number(code: c_int) -> Option<&'static str> {
    const NO_NETWORK: c_int = 43;
    const NO_STORAGE_POOL: c_int = 49;
    const NO_STORAGE_VOL: c_int = 50;
    const NO_SECRET: c_int = 66;
    const OPERATION_TIMEOUT: c_int = 68;
    const MIGRATE_UNSAFE: c_int = 81;
    const CPU_INCOMPATIBLE: c_int = 91;
    Some(match code {
        NO_NETWORK => {
            "define and start the network there (`virsh net-dumpxml` on the source, `virsh net-define` and `net-start` there)"
        }
        NO_STORAGE_POOL | NO_STORAGE_VOL => {
            "have the pool there, started, with the volume in it (`virsh pool-dumpxml` on the source, `virsh pool-define` and `pool-start` there)"
        }
        NO_SECRET => {
            "have the secret there by the same id, with its value (`virsh secret-define`, `virsh secret-set-value`)"
        }
        OPERATION_TIMEOUT => {
            "something else that libvirt does with the domain holds it, or its QEMU does not answer: `virsh domjobinfo` tells"
        }
        MIGRATE_UNSAFE => {
            "libvirt takes the file system of a disk for one of this host alone: name its folder in `shared_filesystems` of \
             /etc/libvirt/qemu.conf on both hosts, if they share it and their libvirt knows that word (9.0 does not)"
        }
        CPU_INCOMPATIBLE => {
            "give the domain a processor that both hosts have (`virsh hypervisor-cpu-baseline` with the capabilities of both), and start it anew"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(code: c_int, words: &str) -> Option<&'static str> {
        advice(&Refusal {
            words: words.to_owned(),
            domain: 10,
            code,
        })
    }

    #[test]
    fn what_libvirt_refuses_is_told_with_what_to_do_by_its_number_in_whatever_language() {
        let unsafe_to = told(81, "Migration ohne gemeinsamen Speicher").unwrap();
        assert!(unsafe_to.contains("shared_filesystems"), "{unsafe_to}");
        let cpu = told(91, "").unwrap();
        assert!(cpu.contains("hypervisor-cpu-baseline"), "{cpu}");
        let tls = told(55, "migration only with VIR_MIGRATE_TLS flag").unwrap();
        assert!(tls.contains("migrate_tls_force"), "{tls}");
        assert_eq!(told(55, "domain is not running"), None);
        assert_eq!(told(1, "internal error"), None);
    }
}
