//! Memories as SFF-8472, SFF-8636 and CMIS lay them out, made by hand: none was read of a real module.

use drover_tune::facts::Medium;
use drover_types::BitRate;

use super::*;

/// A memory of 128 bytes with these in it.
fn memory(parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut memory = vec![0; 128];
    for (at, bytes) in parts {
        memory[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    attribute(DATA, &memory)
}

const VENDOR: &[u8] = b"ACME            ";
const PART: &[u8] = b"DAC-25-2M       ";

fn rates(module: &Module) -> Vec<u64> {
    let rates = module.carries.iter();
    rates.map(|BitRate(rate)| rate / 1_000_000_000).collect()
}

#[test]
fn a_copper_cable_for_25g_carries_less_as_well() {
    let lower = memory(&[
        (0, &[0x03, 0x04, 0x21]),
        (8, &[COPPER]),
        (12, &[0xff]),
        (18, &[2]),
        (20, VENDOR),
        (36, &[0x0d]),
        (40, PART),
        (66, &[0x67]),
        (68, b"SERIAL0123456789"),
    ]);
    let kept = kept(false, &lower);
    assert!(!kept.windows(6).any(|bytes| bytes == b"SERIAL"));
    let module = module(&kept, None).unwrap();
    assert_eq!(
        (module.form.as_str(), module.medium, module.metres),
        ("SFP28", Medium::PassiveCopper, Some(2))
    );
    assert_eq!(
        (module.vendor.as_str(), module.part.as_str()),
        ("ACME", "DAC-25-2M")
    );
    assert_eq!(rates(&module), [1, 10, 25]);
    assert!(!has_upper(&kept));
}

/// `sfp_ct_passive`.
const COPPER: u8 = 1 << 2;

#[test]
fn an_sfp_is_told_by_its_codes_and_a_cable_by_its_rate() {
    for (parts, form, medium, carries) in [
        // Twinax of 10 Gbit/s.
        (
            &[(8, &[COPPER][..]), (12, &[103])][..],
            "SFP+",
            Medium::PassiveCopper,
            &[1, 10][..],
        ),
        // The same for 25, without the code.
        (
            &[(8, &[COPPER]), (12, &[255]), (66, &[103])],
            "SFP28",
            Medium::PassiveCopper,
            &[1, 10, 25],
        ),
        (&[(3, &[1 << 4])], "SFP+", Medium::Fibre, &[10]),
        (&[(36, &[0x02])], "SFP28", Medium::Fibre, &[25]),
        (&[(36, &[0x16])], "SFP+", Medium::TwistedPair, &[10]),
        (&[(6, &[1 << 3])], "SFP", Medium::TwistedPair, &[1]),
        (&[(6, &[1 << 0])], "SFP", Medium::Fibre, &[1]),
        (&[], "SFP", Medium::Unknown, &[]),
    ] {
        let all = [&[(0, &[0x03][..])], parts].concat();
        let module = module(&memory(&all), None).unwrap();
        assert_eq!((module.form.as_str(), module.medium), (form, medium));
        assert_eq!(rates(&module), carries, "{parts:?}");
    }
}

#[test]
fn a_qsfp_is_told_by_its_second_half() {
    let lower = |id: u8| memory(&[(0, &[id])]);
    for (id, parts, form, medium, carries, metres) in [
        (
            0x11,
            &[(18, &[3][..]), (19, &[0xa0]), (64, &[0x0b])][..],
            "QSFP28",
            Medium::PassiveCopper,
            &[40, 50, 100][..],
            Some(3),
        ),
        (
            0x11,
            &[(64, &[0x02])],
            "QSFP28",
            Medium::Fibre,
            &[100],
            None,
        ),
        (
            0x0d,
            &[(3, &[1 << 3]), (18, &[1]), (19, &[0xb0])],
            "QSFP+",
            Medium::PassiveCopper,
            &[40],
            Some(1),
        ),
        (0x0d, &[(3, &[1 << 2])], "QSFP+", Medium::Fibre, &[40], None),
        (
            0x0d,
            &[(3, &[1 << 0]), (18, &[10])],
            "QSFP+",
            Medium::ActiveCable,
            &[40],
            Some(10),
        ),
    ] {
        let id_byte = [id];
        let all = [&[(0, &id_byte[..]), (20, VENDOR)], parts].concat();
        let (lower, upper) = (lower(id), memory(&all));
        assert!(has_upper(&lower));
        let module = module(&lower, Some(&kept(true, &upper))).unwrap();
        assert_eq!(
            (module.form.as_str(), module.medium, module.metres),
            (form, medium, metres)
        );
        assert_eq!(rates(&module), carries, "{parts:?}");
        assert_eq!(module.vendor, "ACME");
    }
    assert!(module(&lower(0x11), None).is_err());
}

#[test]
fn a_module_by_cmis_lists_what_it_can() {
    let lower = memory(&[
        (0, &[0x18]),
        (85, &[3]),
        (86, &[0x1d, 0, 0, 0, 0x1c, 0, 0, 0, 0x1a, 0, 0, 0, 0xff]),
    ]);
    let upper = memory(&[(0, &[0x18]), (1, VENDOR), (20, PART), (38, b"SERIAL")]);
    let kept = kept(true, &upper);
    assert!(!kept.windows(6).any(|bytes| bytes == b"SERIAL"));
    let module = module(&lower, Some(&kept)).unwrap();
    assert_eq!(
        (module.form.as_str(), module.medium),
        ("QSFP-DD", Medium::PassiveCopper)
    );
    assert_eq!(rates(&module), [100, 200, 400]);
    assert_eq!(module.complies, "100GBASE-CR4, 200GBASE-CR4, 400GBASE-CR8");
    assert_eq!(module.part, "DAC-25-2M");
}

#[test]
fn memories_of_any_length_and_content_are_read_or_refused() {
    for id in 0..=255_u8 {
        for length in [0, 1, 2, 37, 67, 87, 128] {
            for fill in [0x00, 0x5a, 0xff] {
                let mut bytes = vec![fill; length];
                if let Some(first) = bytes.first_mut() {
                    *first = id;
                }
                let answer = attribute(DATA, &bytes);
                let _ = module(&kept(false, &answer), Some(&kept(true, &answer)));
                let _ = module(&answer, None);
            }
        }
    }
    assert!(module(&[], None).is_err());
    let text = text(Some(b"a\x1b[2Jb\0\xff "));
    assert_eq!(text, "a[2Jb");
}
