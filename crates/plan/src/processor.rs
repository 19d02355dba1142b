//! Whether a host's processor is one for a guest.

use crate::inventory::{GuestCpu, HostCpu};
use crate::refusal::NoPlace;
use crate::words::Word;

/// Why a processor is not one for a guest, without its words: it is looked up by the million.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misfit {
    Model,
    Features,
    Passthrough,
}

/// Why the processor `there` is not one for a guest that runs on `here`, as plans see it; none where it is one.
#[must_use]
pub fn unsuited(guest: &GuestCpu, here: &HostCpu, there: &HostCpu) -> Option<NoPlace> {
    Some(misfit(guest, here, there)?.reason(guest, here, there))
}

/// The same without its words.
pub(crate) fn misfit(guest: &GuestCpu, here: &HostCpu, there: &HostCpu) -> Option<Misfit> {
    match guest {
        GuestCpu::Named { model, features } => {
            if model
                .as_ref()
                .is_some_and(|model| !there.models.contains(model))
            {
                return Some(Misfit::Model);
            }
            (!features.is_subset(&there.features)).then_some(Misfit::Features)
        }
        GuestCpu::Passthrough if there.model != here.model => Some(Misfit::Passthrough),
        GuestCpu::Passthrough => {
            let mut passed = here.passed();
            let missing = passed.any(|feature| !there.features.contains(feature));
            missing.then_some(Misfit::Features)
        }
    }
}

impl Misfit {
    pub(crate) fn reason(self, guest: &GuestCpu, here: &HostCpu, there: &HostCpu) -> NoPlace {
        let missing = |wanted: &mut dyn Iterator<Item = &Word>| NoPlace::CpuFeatures {
            missing: wanted
                .filter(|feature| !there.features.contains(*feature))
                .cloned()
                .collect(),
        };
        match (self, guest) {
            (Self::Passthrough, _) => NoPlace::CpuPassthrough {
                here: here.model.clone(),
                there: there.model.clone(),
            },
            (
                Self::Model,
                GuestCpu::Named {
                    model: Some(model), ..
                },
            ) => NoPlace::CpuModel {
                model: model.clone(),
            },
            (_, GuestCpu::Named { features, .. }) => missing(&mut features.iter()),
            (_, GuestCpu::Passthrough) => missing(&mut here.passed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn host(model: &str, features: &[&str]) -> HostCpu {
        HostCpu {
            model: model.parse().unwrap(),
            features: features.iter().map(|word| word.parse().unwrap()).collect(),
            models: BTreeSet::new(),
        }
    }

    #[test]
    fn a_guest_with_all_of_its_hosts_processor_fits_the_same_one_with_no_feature_less() {
        let here = host("EPYC-7302", &["avx2", "erms"]);
        let why = |there: &HostCpu| {
            let why = unsuited(&GuestCpu::Passthrough, &here, there);
            why.map(|why| why.to_string())
        };
        assert_eq!(why(&here), None);
        assert_eq!(why(&host("EPYC-7302", &["avx2", "avx512f", "erms"])), None);
        let lacks = why(&host("EPYC-7302", &["avx2"])).unwrap();
        assert_eq!(lacks, "lacks CPU feature erms");
        let emulates_less = host("EPYC-7302", &["avx2", "erms", "tcg/avx2"]);
        let here = host("EPYC-7302", &["avx2", "erms", "tcg/avx2", "tcg/fsrm"]);
        let fits = unsuited(&GuestCpu::Passthrough, &here, &emulates_less);
        assert_eq!(fits, None, "nothing of it is emulated");
        let other = why(&host("Xeon-6248", &["avx2", "erms"])).unwrap();
        assert_eq!(
            other,
            "has another CPU (Xeon-6248) than the EPYC-7302 that was passed to the guest"
        );
    }
}
