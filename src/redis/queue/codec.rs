//! How items become payloads.

use std::error::Error;
use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Format in which items are kept on the server; all processes of a fleet use the same.
pub trait Codec<T>: Clone + Debug + Send + Sync + 'static {
    /// Writes an item.
    ///
    /// # Errors
    /// If the item has no such form.
    fn encode(&self, item: &T) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>>;

    /// Reads an item.
    ///
    /// # Errors
    /// If the payload is no such item: the job is dead-lettered with this error as its cause.
    fn decode(&self, payload: &[u8]) -> Result<T, Box<dyn Error + Send + Sync>>;
}

/// JSON, which people and every language can read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json;

impl<T: Serialize + DeserializeOwned> Codec<T> for Json {
    fn encode(&self, item: &T) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::to_vec(item)?)
    }

    fn decode(&self, payload: &[u8]) -> Result<T, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::from_slice(payload)?)
    }
}

/// CBOR (RFC 8949): binary and shorter, and fields may still be added later as in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cbor;

impl<T: Serialize + DeserializeOwned> Codec<T> for Cbor {
    fn encode(&self, item: &T) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        let mut payload = Vec::new();
        ciborium::into_writer(item, &mut payload)?;
        Ok(payload)
    }

    fn decode(&self, payload: &[u8]) -> Result<T, Box<dyn Error + Send + Sync>> {
        Ok(ciborium::from_reader(payload)?)
    }
}

/// Bytes as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes;

impl Codec<Vec<u8>> for Bytes {
    fn encode(&self, item: &Vec<u8>) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        Ok(item.clone())
    }

    fn decode(&self, payload: &[u8]) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        Ok(payload.to_vec())
    }
}
