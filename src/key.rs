//! Whom a limit counts: one compact value for every kind of key, which nobody can forge.
//!
//! A key is a string of bytes in which every part carries its type and its length. So the text "5" is not the number 5,
//! the pair ("a", "b") is neither the text "a:b" nor the pair ("a:b", ""), and no choice of delimiters inside a part
//! reaches into the next one. Up to 22 bytes are kept in place; longer keys share one allocation among their clones.

#[cfg(feature = "metrics")]
mod text;

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Identity that a limit keeps its count for: a user, an address, a tenant, or several of these together.
///
/// Integers are equal by value, whatever their width; every form of text is equal to every other with the same
/// characters; values of different kinds are never equal. Several parts are joined by a tuple, see [`IntoKey`].
///
/// # Examples
/// ```
/// use sluicegate::{IntoKey, Key};
///
/// assert_eq!(Key::from("ada"), Key::from(String::from("ada")));
/// assert_ne!(Key::from("5"), Key::from(5_u64));
/// assert_ne!(("a", "b").into_key(), Some(Key::from("a:b")));
/// ```
#[derive(Clone)]
pub struct Key(Bytes);

#[derive(Clone)]
enum Bytes {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Arc<[u8]>),
}

impl Key {
    /// Its parts as bytes, each with its type and length; the same for equal keys on every machine.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short { length, bytes } => &bytes[..usize::from(*length)],
            Bytes::Long(bytes) => bytes,
        }
    }

    #[inline] // The parts of most keys are of known lengths.
    fn tagged(tag: u8, parts: &[&[u8]]) -> Self {
        let length = 1 + parts.iter().map(|part| part.len()).sum::<usize>();
        if length <= SHORT {
            let mut bytes = [0; SHORT];
            bytes[0] = tag;
            let mut end = 1;
            for part in parts {
                bytes[end..end + part.len()].copy_from_slice(part);
                end += part.len();
            }
            // `length` is at most 22.
            let length = length as u8;
            return Self(Bytes::Short { length, bytes });
        }
        Self::long(tag, parts, length)
    }

    fn long(tag: u8, parts: &[&[u8]], length: usize) -> Self {
        let mut bytes = Vec::with_capacity(length);
        bytes.push(tag);
        for part in parts {
            bytes.extend_from_slice(part);
        }
        Self(Bytes::Long(bytes.into()))
    }

    /// A tag, the length in eight bits or, marked by 255, in 64, and the bytes.
    fn measured(tag: u8, bytes: &[u8]) -> Self {
        match u8::try_from(bytes.len()) {
            Ok(length) if length < LONG_LENGTH => Self::tagged(tag, &[&[length], bytes]),
            _ => {
                let length = (bytes.len() as u64).to_be_bytes();
                Self::tagged(tag, &[&[LONG_LENGTH], &length, bytes])
            }
        }
    }

    /// Sign and magnitude without leading zeros, so that the width of the type leaves no trace.
    fn integer(tag: u8, magnitude: u128) -> Self {
        let bytes = magnitude.to_be_bytes();
        let zeros = (magnitude.leading_zeros() / 8) as usize;
        Self::measured(tag, &bytes[zeros..])
    }
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            // What is not used is zero, so all of it is compared, by the word.
            (
                Bytes::Short { length, bytes },
                Bytes::Short {
                    length: others,
                    bytes: other,
                },
            ) => length == others && bytes == other,
            (Bytes::Long(bytes), Bytes::Long(other)) => bytes == other,
            // What fits in place is kept there.
            _ => false,
        }
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The parts measure themselves, so no length has to be hashed beside them.
        state.write(self.as_bytes());
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.as_bytes().escape_ascii())
    }
}

macro_rules! unsigned {
    ($($type:ty),*) => {$(
        impl From<$type> for Key {
            fn from(value: $type) -> Self {
                Self::integer(POSITIVE, value as u128)
            }
        }
    )*};
}

macro_rules! signed {
    ($($type:ty),*) => {$(
        impl From<$type> for Key {
            fn from(value: $type) -> Self {
                let tag = if value < 0 { NEGATIVE } else { POSITIVE };
                Self::integer(tag, value.unsigned_abs() as u128)
            }
        }
    )*};
}

unsigned!(u8, u16, u32, u64, u128, usize);
signed!(i8, i16, i32, i64, i128, isize);

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::measured(TEXT, text.as_bytes())
    }
}

macro_rules! text {
    ($($type:ty),*) => {$(
        impl From<$type> for Key {
            fn from(text: $type) -> Self {
                Self::from(&*text as &str)
            }
        }
    )*};
}

text!(String, Arc<str>, Box<str>, Cow<'_, str>);

impl From<&String> for Key {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&Arc<str>> for Key {
    fn from(text: &Arc<str>) -> Self {
        Self::from(&**text)
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        Self::measured(BYTES, bytes)
    }
}

impl<const N: usize> From<&[u8; N]> for Key {
    fn from(bytes: &[u8; N]) -> Self {
        Self::from(&bytes[..])
    }
}

impl From<Vec<u8>> for Key {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(&bytes[..])
    }
}

impl From<Ipv4Addr> for Key {
    fn from(address: Ipv4Addr) -> Self {
        Self::tagged(IPV4, &[&address.octets()])
    }
}

impl From<Ipv6Addr> for Key {
    fn from(address: Ipv6Addr) -> Self {
        Self::tagged(IPV6, &[&address.octets()])
    }
}

impl From<IpAddr> for Key {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::from(address),
            IpAddr::V6(address) => Self::from(address),
        }
    }
}

impl From<()> for Key {
    fn from((): ()) -> Self {
        Self::tagged(UNIT, &[])
    }
}

impl From<bool> for Key {
    fn from(value: bool) -> Self {
        Self::tagged(BOOL, &[&[u8::from(value)]])
    }
}

impl From<char> for Key {
    fn from(value: char) -> Self {
        Self::from(&*value.encode_utf8(&mut [0; 4]))
    }
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Self {
        key.clone()
    }
}

/// What a level of a hierarchy can be keyed by: anything that is a [`Key`], an `Option` of it, or a tuple.
///
/// `None`, also inside a tuple, means that the level does not apply to this request and is skipped; to fall back to
/// something else instead, choose it in the key function: a user's id or, without one, the address. `()` is the one key
/// of a level that everybody shares.
pub trait IntoKey {
    /// Makes the key; `None` if there is none.
    fn into_key(self) -> Option<Key>;
}

impl<K: Into<Key>> IntoKey for K {
    fn into_key(self) -> Option<Key> {
        Some(self.into())
    }
}

impl<K: Into<Key>> IntoKey for Option<K> {
    fn into_key(self) -> Option<Key> {
        self.map(Into::into)
    }
}

macro_rules! tuple {
    ($count:literal: $($part:ident)+) => {
        impl<$($part: IntoKey),+> IntoKey for ($($part,)+) {
            #[allow(non_snake_case)] // Each part is named as its type.
            fn into_key(self) -> Option<Key> {
                let ($($part,)+) = self;
                $(let $part = $part.into_key()?;)+
                Some(Key::tagged(TUPLE, &[&[$count], $($part.as_bytes()),+]))
            }
        }
    };
}

tuple!(1: A);
tuple!(2: A B);
tuple!(3: A B C);
tuple!(4: A B C D);
tuple!(5: A B C D E);
tuple!(6: A B C D E F);

/// Bytes kept in place: as many as fit beside the length into the three words of the long form.
const SHORT: usize = 22;
/// Marks a length that does not fit eight bits.
const LONG_LENGTH: u8 = u8::MAX;

// The kinds. They are part of what `as_bytes` promises: a new kind takes a new letter.
const POSITIVE: u8 = b'+';
const NEGATIVE: u8 = b'-';
const TEXT: u8 = b's';
const BYTES: u8 = b'b';
const IPV4: u8 = b'4';
const IPV6: u8 = b'6';
const UNIT: u8 = b'_';
const BOOL: u8 = b'?';
const TUPLE: u8 = b'(';

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn differ(a: impl IntoKey, b: impl IntoKey) {
        assert_ne!(a.into_key(), b.into_key());
    }

    #[test]
    fn equal_values_are_equal_keys_whatever_holds_them() {
        assert_eq!(Key::from(7_u8), Key::from(7_i128));
        assert_eq!(Key::from("é"), Key::from('é'));
        let texts: [Key; 5] = [
            "ab".into(),
            String::from("ab").into(),
            Arc::<str>::from("ab").into(),
            Cow::Borrowed("ab").into(),
            (&String::from("ab")).into(),
        ];
        assert!(texts.iter().all(|key| *key == texts[0]));
    }

    #[test]
    fn level_keys_cannot_collide() {
        differ("5", 5);
        differ(5, -5);
        differ("a", &b"a"[..]);
        differ("a:b", ("a", "b"));
        differ(("a:b", "c"), ("a", "b:c"));
        differ(("a", ("b", "c")), (("a", "b"), "c"));
        differ(("a", "b", "c"), ("a", ("b", "c")));
        differ("1.2.3.4", IpAddr::from([1, 2, 3, 4]));
        differ(IpAddr::from([1, 2, 3, 4]), u32::from_be_bytes([1, 2, 3, 4]));
        differ((), "");
        differ((), ((),));
        differ(true, 1);
    }

    #[test]
    fn a_missing_part_skips_the_level() {
        assert_eq!(None::<u64>.into_key(), None);
        assert_eq!((None::<u64>, "GET").into_key(), None);
        assert_eq!((Some(1_u64), "GET").into_key(), (1_u64, "GET").into_key());
    }

    #[test]
    fn a_key_of_ten_kilobytes_is_one_allocation_shared_by_its_clones() {
        let key = Key::from("x".repeat(10_000));
        let clone = key.clone();
        assert_eq!(key.as_bytes().as_ptr(), clone.as_bytes().as_ptr());
        assert_eq!(size_of::<Key>(), 24);
    }

    fn atom() -> impl Strategy<Value = (String, Option<u64>)> {
        (
            "[a(:s+\\x00\\x01]{0,30}",
            proptest::option::of(any::<u64>()),
        )
    }

    proptest! {
        #[test]
        fn forged_delimiters_never_make_two_keys_equal(a in atom(), b in atom()) {
            let key = |(text, number): &(String, Option<u64>)| match number {
                Some(number) => (text.as_str(), *number).into_key(),
                None => (text.as_str(), "").into_key(),
            };
            prop_assert_eq!(key(&a) == key(&b), a == b);
            let texts = (a.0.as_str(), b.0.as_str());
            let joined = format!("{}{}", a.0, b.0);
            prop_assert_ne!(texts.into_key(), Some(Key::from(joined)));
            prop_assert_eq!(texts.into_key() == (b.0.as_str(), a.0.as_str()).into_key(), a.0 == b.0);
        }
    }
}
