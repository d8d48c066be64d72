//! Counts bytes and calls per operation, and per route.

/// Declares a struct that counts bytes and calls per variant of an enum:
/// `counts! { Traffic per Operation }`.
macro_rules! counts {
    ($(#[$meta:meta])* $name:ident per $kind:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            bytes: [u64; $kind::ALL.len()],
            calls: [u64; $kind::ALL.len()],
        }

        impl $name {
            /// Returns the payload bytes of `kind`.
            pub fn bytes(&self, kind: $kind) -> u64 {
                self.bytes[kind.index()]
            }

            /// Returns the number of `kind`s.
            pub fn calls(&self, kind: $kind) -> u64 {
                self.calls[kind.index()]
            }

            /// Returns the payload bytes of all kinds.
            pub fn total_bytes(&self) -> u64 {
                self.bytes.iter().sum()
            }
        }

        impl crate::phases::Accumulate for $name {
            fn add(&mut self, other: &$name, times: u64) {
                self.bytes.add(&other.bytes, times);
                self.calls.add(&other.calls, times);
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let used = $kind::ALL.into_iter().filter(|&kind| self.calls(kind) > 0);
                let counts = |kind| [("bytes", self.bytes(kind)), ("calls", self.calls(kind))];
                serializer.collect_map(used.map(|kind| (kind, std::collections::BTreeMap::from(counts(kind)))))
            }
        }
    };
}

pub(crate) use counts;
