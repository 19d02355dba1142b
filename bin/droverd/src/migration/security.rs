//! Agreeing with the other agent on what protects the lanes.

use drover_api::{Encryption, ErrorCode, LaneEncryption, LaneSecurity, Refusal};
use drover_carrier::TlsKeys;
use drover_relay::{Fingerprint, Identity, NoFingerprint, Token, new_token};
use drover_types::{HostName, with_sources};

use crate::config::Protection;

/// What protects a guest's lanes, where this is configured. A domain's carry libvirt's control connection beside its memory: whoever
/// could change those bytes on their way could give orders to libvirtd, which is root. So they are always encrypted.
pub fn protection(configured: Protection, is_domain: bool) -> Protection {
    let encryption = match is_domain {
        true => Encryption::On,
        false => configured.encryption,
    };
    Protection {
        encryption,
        ..configured
    }
}

/// What one end brings to a migration.
#[derive(Debug)]
pub struct Own {
    identity: Identity,
    configured: Protection,
}

impl Own {
    /// A new certificate, and what the configuration says.
    ///
    /// # Errors
    /// No certificate could be made.
    pub fn new(configured: Protection) -> Result<Self, Refusal> {
        let identity = Identity::generate().map_err(|error| internal(&error))?;
        Ok(Self {
            identity,
            configured,
        })
    }

    /// What the other agent is told: as the source, what we want.
    pub fn told(&self) -> LaneSecurity {
        self.with(self.configured)
    }

    fn with(&self, used: Protection) -> LaneSecurity {
        LaneSecurity {
            encryption: used.encryption,
            verify: used.verify,
            certificate: self.identity.fingerprint().to_string(),
        }
    }

    /// As the destination: what is used, and what the source is told.
    ///
    /// # Errors
    /// What the source said cannot be used.
    pub fn decide(
        &self,
        source: &LaneSecurity,
    ) -> Result<(Option<TlsKeys>, LaneSecurity), Refusal> {
        let used = self.stricter(source);
        let keys = self.keys(used.encryption, source, ErrorCode::BadRequest)?;
        Ok((keys, self.with(used)))
    }

    /// As the source: what the destination decided, if that is as strict as we are.
    ///
    /// # Errors
    /// It is not, or cannot be used.
    pub fn accept(
        &self,
        host: &HostName,
        decided: &LaneSecurity,
    ) -> Result<Option<TlsKeys>, Refusal> {
        let least = self.stricter(decided);
        if least.verify != decided.verify {
            let message =
                format!("{host} wants lanes without checksums, and `migration.verify` is on here");
            return Err(Refusal::new(ErrorCode::VersionMismatch, message)
                .next(format!("bring the agent of {host} to this version")));
        }
        if least.encryption != decided.encryption {
            let message = format!(
                "{host} wants lanes without encryption, and `migration.encryption` is on here"
            );
            return Err(
                Refusal::new(ErrorCode::EncryptionRefused, message).next(format!(
                    "look what runs on {host}: an agent does not answer so"
                )),
            );
        }
        self.keys(decided.encryption, decided, ErrorCode::EncryptionRefused)
    }

    /// What we want and what the other end says, whichever protects more.
    fn stricter(&self, other: &LaneSecurity) -> Protection {
        Protection {
            encryption: self.configured.encryption.stricter(other.encryption),
            verify: self.configured.verify || other.verify,
        }
    }

    /// What the relay's process needs of TLS; nothing without encryption.
    fn keys(
        &self,
        used: Encryption,
        peer: &LaneSecurity,
        code: ErrorCode,
    ) -> Result<Option<TlsKeys>, Refusal> {
        if used == Encryption::Off {
            return Ok(None);
        }
        let fingerprint: Result<Fingerprint, NoFingerprint> = peer.certificate.parse();
        let fingerprint = fingerprint.map_err(|error| Refusal::new(code, error.to_string()))?;
        let (certificate, key) = self.identity.parts();
        Ok(Some(TlsKeys {
            certificate,
            key,
            peer: fingerprint.to_string(),
        }))
    }
}

fn internal(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(ErrorCode::Internal, with_sources(error))
}

/// What an operator should know of the choice: that nothing is encrypted, or why it is.
pub fn note(
    (here, ours): (&HostName, Encryption),
    (there, theirs): (&HostName, Encryption),
) -> Option<String> {
    let strict = match (ours, theirs) {
        (Encryption::On, Encryption::On) => return None,
        (Encryption::Off, Encryption::Off) => {
            return Some("not encrypted: `migration.encryption` is off on both hosts".to_owned());
        }
        (Encryption::On, Encryption::Off) => here,
        (Encryption::Off, Encryption::On) => there,
    };
    Some(format!(
        "encrypted although one host does not ask for it: `migration.encryption` is on on {strict}"
    ))
}

/// What an operator should know of it where the guest is a domain.
pub fn note_of_domain(configured: Encryption) -> Option<String> {
    (configured == Encryption::Off).then(|| {
        "encrypted although `migration.encryption` is off here: libvirt's control connection, which a domain moves by, is root on both hosts"
            .to_owned()
    })
}

/// As it is shown.
pub fn shown(encryption: drover_relay::Encryption) -> LaneEncryption {
    match encryption {
        drover_relay::Encryption::Off => LaneEncryption::Off,
        drover_relay::Encryption::Tls13Aes128Gcm => LaneEncryption::Tls13Aes128Gcm,
        drover_relay::Encryption::Tls13Chacha20Poly1305 => LaneEncryption::Tls13Chacha20Poly1305,
    }
}

/// A secret for the lanes of one migration, and how the source is told.
///
/// # Errors
/// The kernel has no random bytes.
pub fn token() -> Result<(Token, String), Refusal> {
    let token = new_token().map_err(|error| {
        Refusal::new(ErrorCode::Internal, format!("cannot draw a token: {error}"))
    })?;
    let told = token.0.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((token, told))
}

/// The secret as the destination told it. It is not repeated when it cannot be used.
///
/// # Errors
/// It is no secret.
pub fn parse_token(told: &str) -> Result<Token, String> {
    let digits = told.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err("the destination's token is not 64 hexadecimal digits".to_owned());
    }
    let value = |digit: u8| (digit as char).to_digit(16).unwrap_or(0) as u8;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = value(pair[0]) << 4 | value(pair[1]);
    }
    Ok(Token(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(encryption: Encryption) -> Own {
        verifying(encryption, false)
    }

    fn verifying(encryption: Encryption, verify: bool) -> Own {
        Own::new(Protection { encryption, verify }).unwrap()
    }

    fn host(name: &str) -> HostName {
        name.parse().unwrap()
    }

    #[test]
    fn both_ends_come_to_the_same_whatever_they_are_configured_for() {
        use Encryption::{Off, On};
        for (source, destination, used) in
            [(On, On, On), (On, Off, On), (Off, On, On), (Off, Off, Off)]
        {
            let (source, destination) = (own(source), own(destination));
            let (there, decided) = destination.decide(&source.told()).unwrap();
            let here = source.accept(&host("b"), &decided).unwrap();
            assert_eq!(decided.encryption, used);
            for end in [here, there] {
                assert_eq!(end.is_some(), used == On);
            }
        }
    }

    #[test]
    fn a_domain_moves_encrypted_whatever_is_configured() {
        use Encryption::{Off, On};
        let used = |encryption, is_domain| {
            let verify = true;
            let configured = Protection { encryption, verify };
            let used = protection(configured, is_domain);
            assert!(used.verify);
            used.encryption
        };
        assert_eq!((used(On, true), used(Off, true)), (On, On));
        assert_eq!((used(On, false), used(Off, false)), (On, Off));
        assert_eq!(note_of_domain(On), None);
        assert!(note_of_domain(Off).unwrap().contains("is off here"));
        // Both ends, so that a source of another mind is not followed.
        let own = |is_domain| Own::new(protection(own(Off).configured, is_domain)).unwrap();
        let (keys, decided) = own(true).decide(&own(false).told()).unwrap();
        assert!(keys.is_some() && decided.encryption == On);
    }

    #[test]
    fn a_destination_that_is_less_strict_than_asked_for_is_refused() {
        let (source, destination) = (own(Encryption::On), own(Encryption::Off));
        let refused = source.accept(&host("b"), &destination.told()).unwrap_err();
        assert_eq!(refused.code, ErrorCode::EncryptionRefused);
        assert!(refused.message.contains("b wants lanes without encryption"));
    }

    #[test]
    fn chunks_have_checksums_if_either_host_asks_for_them() {
        for (here, there) in [(false, false), (false, true), (true, false), (true, true)] {
            let source = verifying(Encryption::On, here);
            let destination = verifying(Encryption::On, there);
            let (_, decided) = destination.decide(&source.told()).unwrap();
            assert_eq!(decided.verify, here || there);
            source.accept(&host("b"), &decided).unwrap();
        }
    }

    #[test]
    fn a_destination_that_knows_no_checksums_is_refused_if_they_are_asked_for() {
        let source = verifying(Encryption::On, true);
        let refused = source.accept(&host("b"), &own(Encryption::On).told());
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, ErrorCode::VersionMismatch);
        assert!(refused.message.contains("`migration.verify` is on here"));
    }

    #[test]
    fn a_certificate_that_is_none_is_refused_before_anything_is_opened() {
        let (source, destination) = (own(Encryption::On), own(Encryption::On));
        let mut told = source.told();
        told.certificate = "0".repeat(63);
        let refused = destination.decide(&told).unwrap_err();
        assert_eq!(refused.code, ErrorCode::BadRequest);
        assert!(refused.message.contains("64 hexadecimal digits"));
    }

    #[test]
    fn a_token_survives_being_told_and_what_is_none_is_not_repeated() {
        let (token, told) = token().unwrap();
        assert_eq!(parse_token(&told).unwrap().0, token.0);
        for text in ["", "00", &"x".repeat(64), &told[1..], &"é".repeat(32)] {
            let refused = parse_token(text).unwrap_err();
            assert!(text.is_empty() || !refused.contains(text), "{refused}");
        }
    }

    #[test]
    fn the_choice_is_explained_unless_both_hosts_ask_for_encryption() {
        use Encryption::{Off, On};
        let (a, b) = (host("a"), host("b"));
        assert_eq!(note((&a, On), (&b, On)), None);
        let said = |ours, theirs| note((&a, ours), (&b, theirs)).unwrap();
        assert!(said(Off, Off).contains("off on both hosts"));
        assert!(said(On, Off).ends_with("on on a"));
        assert!(said(Off, On).ends_with("on on b"));
    }
}
