//! Keys and their values, within a bound.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Limit of the memory of all keys and values.
const CAPACITY: usize = 16 * 1024 * 1024;
/// Approximate overhead of an entry: two vectors, its share of a tree node and two heap blocks.
const OVERHEAD: usize = 128;

/// The store is full.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

/// Keys and their values.
#[derive(Default)]
pub struct Store {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    used: usize,
}

impl Store {
    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.entries.get(key).map(Vec::as_slice)
    }

    /// Set the value of a key; its memory is reused if the new value fits.
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), Full> {
        let entry = self.entries.get_mut(key);
        let released = entry.as_ref().map_or(0, |old| key.len() + old.capacity() + OVERHEAD);
        let size = entry.as_ref().map_or(0, |old| old.capacity()).max(value.len());
        let used = self.used - released + key.len() + size + OVERHEAD;
        if used > CAPACITY {
            return Err(Full);
        }
        if let Some(old) = entry {
            old.clear();
            old.reserve_exact(value.len());
            old.extend_from_slice(value);
        } else {
            self.entries.insert(key.to_vec(), value.to_vec());
        }
        self.used = used;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_its_last_value() {
        let mut store = Store::default();
        assert_eq!(store.get(b"key"), None);
        for value in [b"long value".as_slice(), b"", b"short", b"a longer value than all before"] {
            store.set(b"key", value).unwrap();
            assert_eq!(store.get(b"key"), Some(value));
        }
    }

    #[test]
    fn a_full_store_refuses_new_keys_and_keeps_the_old_ones() {
        let mut store = Store::default();
        let value = [7; 8192];
        let keys = (0_u32..).take_while(|key| store.set(&key.to_le_bytes(), &value).is_ok()).count();
        assert!((1500..=CAPACITY / value.len()).contains(&keys), "{keys}");
        assert_eq!(store.set(b"one more", &value), Err(Full));
        assert_eq!(store.get(b"one more"), None);
        assert_eq!(store.get(&0_u32.to_le_bytes()), Some(value.as_slice()));
        store.set(&0_u32.to_le_bytes(), b"shorter").unwrap();
    }
}
