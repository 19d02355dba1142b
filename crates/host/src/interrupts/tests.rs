use std::fs;

use super::*;
use crate::placement::tests::Tree as Sockets;

/// With interrupts, as `/proc` has them: number, who may take it, who does.
fn give(tree: &Sockets, device: &str, interrupts: &[(u32, &str, &str)]) {
    for (number, cpus, effective) in interrupts {
        tree.write(&format!("{device}/{IRQS}/{number}"), "msix\n");
        tree.write(&format!("proc/irq/{number}/smp_affinity_list"), cpus);
        tree.write(
            &format!("proc/irq/{number}/effective_affinity_list"),
            effective,
        );
    }
}

fn of(tree: &Sockets, name: &str) -> Adapters {
    let root = tree.0.path();
    let folder = root.join("sys/class/net").join(name);
    of_folder(root, &Nodes::of(root), &folder)
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn interrupt(number: u32, may: &str, does: &str) -> Interrupt {
    Interrupt {
        number,
        cpus: cpus(may),
        effective: cpus(does),
        fixed: false,
    }
}

#[test]
fn an_adapter_has_its_interrupts_and_the_processors_of_its_node() {
    let tree = Sockets::two_sockets();
    tree.pci("0000:af:00.0", "ens5f0", "1\n", "16-31,48-63\n");
    let device = "sys/devices/pci0000:00/0000:af:00.0";
    give(
        &tree,
        device,
        &[(121, "0-63\n", "17\n"), (120, "3\n", "3\n")],
    );
    let adapter = Adapter {
        device: device.into(),
        near: cpus("16-31,48-63"),
        interrupts: vec![interrupt(120, "3", "3"), interrupt(121, "0-63", "17")],
    };
    let expected = Adapters {
        near: vec![adapter],
        others: vec![],
    };
    assert_eq!(of(&tree, "ens5f0"), expected);
    tree.on_top("ens5f0.40", &["ens5f0"]);
    assert_eq!(of(&tree, "ens5f0.40"), expected);
}

#[test]
fn each_member_of_a_bond_is_near_its_own_node_and_one_without_is_told() {
    let tree = Sockets::two_sockets();
    tree.pci("0000:3b:00.0", "ens1f0", "0\n", "0-15,32-47\n");
    tree.pci("0000:af:00.0", "ens5f0", "1\n", "16-31,48-63\n");
    tree.pci("0000:00:03.0", "eth0", "-1\n", "0-63\n");
    tree.pci("0000:00:04.0", "eth1", "-1\n", "0-63\n");
    tree.on_top("bond0", &["ens1f0", "ens5f0", "eth0", "eth1"]);
    for (slot, number) in [("3b", 60), ("af", 61)] {
        let device = format!("sys/devices/pci0000:00/0000:{slot}:00.0");
        give(&tree, &device, &[(number, "0-63\n", "1\n")]);
    }
    let adapters = of(&tree, "bond0");
    let near: Vec<_> = adapters.near.iter().map(|one| one.near.clone()).collect();
    assert_eq!(near, [cpus("0-15,32-47"), cpus("16-31,48-63")]);
    assert_eq!(adapters.others, ["its hardware tells no NUMA node"]);
}

#[test]
fn a_virtio_device_has_those_of_its_parent_and_two_ports_of_a_device_have_them_once() {
    let tree = Sockets::two_sockets();
    let pci = "sys/devices/pci0000:80/0000:80:03.0";
    tree.write(&format!("{pci}/numa_node"), "1\n");
    tree.net(&format!("{pci}/virtio0"), "eth0");
    tree.net(&format!("{pci}/virtio1"), "eth1");
    tree.on_top("bond0", &["eth0", "eth1"]);
    give(&tree, pci, &[(38, "0-63\n", "\n")]);
    for name in ["eth0", "bond0"] {
        let adapters = of(&tree, name);
        assert_eq!(adapters.near.len(), 1, "{name}");
        assert_eq!(adapters.near[0].device, pci);
        assert_eq!(adapters.near[0].interrupts, [interrupt(38, "0-63", "")]);
    }
}

#[test]
fn where_there_is_nothing_to_be_near_or_no_interrupt_the_reason_is_told() {
    let tree = Sockets::two_sockets();
    tree.on_top("veth0", &[]);
    tree.pci("0000:af:00.0", "ens5f0", "1\n", "16-31,48-63\n");
    tree.pci("0000:b0:00.0", "ens6f0", "1\n", "16-31,48-63\n");
    let device = "sys/devices/pci0000:00/0000:b0:00.0";
    give(&tree, device, &[(9, "what\n", "\n")]);
    for (name, why) in [
        ("veth0", "it is virtual"),
        ("ens5f0", "its device tells of no interrupts"),
        (
            "ens6f0",
            "proc/irq/9/smp_affinity_list is \"what\", no list of CPUs",
        ),
    ] {
        assert_eq!(of(&tree, name), Adapters::none(why), "{name}");
    }
    let one = Sockets::new(&[(0, "0-3\n")]);
    one.pci("0000:3b:00.0", "ens1f0", "0\n", "0-3\n");
    let why = "the host has one NUMA node";
    assert_eq!(of(&one, "ens1f0"), Adapters::none(why));
}

#[test]
fn who_may_take_an_interrupt_is_written_whole_and_only_where_there_is_one() {
    let tree = Sockets::two_sockets();
    let (root, device) = (tree.0.path(), "sys/devices/pci0000:00/0000:af:00.0");
    give(&tree, device, &[(120, "0-31,48-63\n", "\n")]);
    set_affinity(root, 120, &cpus("16-31")).unwrap();
    let file = root.join("proc/irq/120/smp_affinity_list");
    assert_eq!(fs::read_to_string(file).unwrap(), "16-31");
    assert_eq!(affinity(root, device, 120), Some(cpus("16-31")));
    // Another device may have the number by now.
    assert_eq!(affinity(root, "sys/devices/other", 120), None);
    let refused = set_affinity(root, 121, &cpus("16-31")).unwrap_err();
    assert!(
        matches!(refused, AffinityError::Refused { number: 121, .. }),
        "{refused:?}"
    );
    assert!(!root.join("proc/irq/121").exists());
}

#[test]
fn an_interrupt_whose_file_is_for_reading_alone_is_the_kernels_own() {
    let tree = Sockets::two_sockets();
    let (root, device) = (tree.0.path(), "sys/devices/pci0000:00/0000:af:00.0");
    give(&tree, device, &[(120, "3\n", "3\n"), (121, "4\n", "4\n")]);
    let folder = root.join(device);
    assert_eq!(fixed(root, &folder), BTreeSet::new());
    let reading = fs::Permissions::from_mode(0o444);
    fs::set_permissions(root.join("proc/irq/121/smp_affinity_list"), reading).unwrap();
    // One without a file tells nothing.
    tree.write(&format!("{device}/{IRQS}/122"), "msix\n");
    assert_eq!(fixed(root, &folder), [121].into());
}

#[test]
fn a_process_of_that_name_is_irqbalance_whatever_its_number() {
    let tree = Sockets::two_sockets();
    tree.write("proc/1/comm", "systemd\n");
    tree.write("proc/irq/comm", "irqbalance\n");
    assert_eq!(irqbalance(tree.0.path()), Some(false));
    tree.write("proc/812/comm", "irqbalance\n");
    assert_eq!(irqbalance(tree.0.path()), Some(true));
}

#[tokio::test]
async fn interfaces_of_this_machine_have_adapters_or_say_why_not() {
    let found = adapters(Path::new("/"), &["lo", "none"]).await.unwrap();
    assert_eq!(found.len(), 2);
    for (name, adapters) in found {
        assert!(
            adapters.near.is_empty() && !adapters.others.is_empty(),
            "{name}"
        );
    }
}

#[test]
fn the_kernel_takes_who_may_take_an_interrupt_in_the_words_in_which_it_tells_it() {
    let root = Path::new("/");
    let numbers = crate::files::entries(&root.join("proc/irq")).into_iter();
    let mut own = numbers.filter_map(|path| path.file_name()?.to_str()?.parse::<u32>().ok());
    let told = |number| text(&file(root, number)).ok();
    // What is there is written again: nothing is moved.
    let takes = |number: &u32| {
        let now = told(*number).and_then(|list| list.parse().ok());
        now.is_some_and(|now| set_affinity(root, *number, &now).is_ok())
    };
    let Some(number) = own.find(takes) else {
        eprintln!("skipped, because this process may say of no interrupt who takes it");
        return;
    };
    let list = told(number).unwrap();
    let cpus: CpuSet = list.parse().unwrap();
    assert_eq!(cpus.to_string(), list.trim());
}
