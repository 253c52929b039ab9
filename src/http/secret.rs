//! Names that callers bring, kept as hashes that nobody can turn back.

use std::hash::{BuildHasher, RandomState};
#[allow(deprecated)]
// The one SipHash of std whose keys can be chosen; it is deprecated for `HashMap`'s sake only.
use std::hash::{Hasher, SipHasher};
use std::sync::LazyLock;

use crate::key::Key;

/// Keys of two SipHash-2-4, whose results together are 128 bits.
#[derive(Clone, Copy)]
pub(super) struct Secret([u64; 4]);

impl Secret {
    /// The same for this process, and for it only.
    pub(super) fn of_process() -> Self {
        *PROCESS
    }

    pub(super) fn new(bytes: [u8; 32]) -> Self {
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            for byte in bytes {
                *word = *word << 8 | u64::from(*byte);
            }
        }
        Self(words)
    }

    /// Hash of a name of one kind: the user "a" and the API key "a" are different.
    pub(super) fn key(&self, kind: Kind, name: &[u8]) -> Key {
        let [a, b, c, d] = self.0;
        let half = |k0, k1| {
            #[allow(deprecated)]
            let mut hasher = SipHasher::new_with_keys(k0, k1);
            hasher.write(&[kind as u8]);
            hasher.write(name);
            hasher.finish()
        };
        let hash = u128::from(half(a, b)) << 64 | u128::from(half(c, d));
        Key::from(&hash.to_be_bytes())
    }
}

/// What a name is a name of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    User = 1,
    ApiKey = 2,
    Tenant = 3,
}

static PROCESS: LazyLock<Secret> = LazyLock::new(|| {
    // Each is seeded by the system; what a hasher of it says about nothing is as good as its keys.
    Secret([(); 4].map(|()| RandomState::new().hash_one(0_u8)))
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_of_the_fleet_gives_the_same_key_everywhere() {
        let (a, b) = (Secret::new([7; 32]), Secret::new([7; 32]));
        assert_eq!(a.key(Kind::User, b"ada"), b.key(Kind::User, b"ada"));
        assert_ne!(
            a.key(Kind::User, b"ada"),
            Secret::new([8; 32]).key(Kind::User, b"ada")
        );
    }

    #[test]
    fn kinds_do_not_meet_and_the_name_is_not_kept() {
        let secret = Secret::of_process();
        let key = secret.key(Kind::ApiKey, b"sk_live_123");
        assert_ne!(key, secret.key(Kind::User, b"sk_live_123"));
        let shown = String::from_utf8_lossy(key.as_bytes()).into_owned();
        assert!(!shown.contains("sk_live"), "{shown}");
        let halves = [&key.as_bytes()[2..10], &key.as_bytes()[10..]];
        assert_ne!(halves[0], halves[1]);
    }
}
