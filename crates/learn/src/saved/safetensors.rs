//! The safetensors format: named little-endian tensors of floats in one file.
//!
//! Owns the bytes (<https://huggingface.co/docs/safetensors>): a u64 length, a JSON header with
//! type, shape and place of every tensor, then the values. The header's metadata holds the hash of the
//! values, by which a damaged file is told; files of others need not have one. Never touches files.

use planaria_store::hash::{hex, sha256};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Longest header read, as in the reference implementation.
const HEADER_BYTES_MAX: usize = 100_000_000;

/// The hash of all values, in the metadata.
const HASH: &str = "sha256";
/// Its place until the values are known.
const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A tensor to write.
#[derive(Debug)]
pub struct Tensor<'a> {
    pub name: &'a str,
    pub shape: &'a [usize],
    /// Its values, last side innermost.
    pub values: Values<'a>,
}

/// Values of a tensor.
#[derive(Debug, Clone, Copy)]
pub enum Values<'a> {
    /// In single precision.
    F32(&'a [f32]),
    /// In double precision.
    F64(&'a [f64]),
}

impl Values<'_> {
    fn dtype(&self) -> &'static str {
        match self {
            Self::F32(_) => "F32",
            Self::F64(_) => "F64",
        }
    }

    fn append_to(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.resize(start + self.len_bytes(), 0);
        let room = &mut bytes[start..];
        match self {
            Self::F32(values) => {
                let places = room.as_chunks_mut::<4>().0.iter_mut();
                places.zip(*values).for_each(|(place, v)| *place = v.to_le_bytes());
            }
            Self::F64(values) => {
                let places = room.as_chunks_mut::<8>().0.iter_mut();
                places.zip(*values).for_each(|(place, v)| *place = v.to_le_bytes());
            }
        }
    }

    fn len_bytes(&self) -> usize {
        match self {
            Self::F32(values) => 4 * values.len(),
            Self::F64(values) => 8 * values.len(),
        }
    }
}

/// Tensors read from a file.
#[derive(Debug)]
pub struct Tensors<'a> {
    places: BTreeMap<String, Place>,
    values: &'a [u8],
    /// What the header says that the hash of the values is.
    hash: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Place {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// The file's bytes.
pub fn encode(tensors: &[Tensor<'_>], metadata: &[(&str, &str)]) -> Vec<u8> {
    let metadata = metadata.iter().chain(&[(HASH, NO_HASH)]);
    let metadata: Map<String, Value> = metadata.map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
    let mut header = Map::from_iter([("__metadata__".to_owned(), Value::Object(metadata))]);
    let mut at = 0;
    for tensor in tensors {
        let end = at + tensor.values.len_bytes();
        header.insert(
            tensor.name.to_owned(),
            json!({
                "dtype": tensor.values.dtype(),
                "shape": tensor.shape,
                "data_offsets": [at, end],
            }),
        );
        at = end;
    }
    let mut header = Value::Object(header).to_string();
    // Spaces up to a multiple of eight keep the values aligned.
    header.extend(std::iter::repeat_n(' ', header.len().wrapping_neg() % 8));
    let mut bytes = Vec::with_capacity(8 + header.len() + at);
    bytes.extend_from_slice(&(header.len() as u64).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    for tensor in tensors {
        tensor.values.append_to(&mut bytes);
    }
    if let Some(at) = header.find(NO_HASH) {
        let hash = hash(&bytes[8 + header.len()..]);
        bytes[8 + at..][..hash.len()].copy_from_slice(hash.as_bytes());
    }
    bytes
}

fn hash(values: &[u8]) -> String {
    hex(&sha256(values))
}

impl<'a> Tensors<'a> {
    /// Reads the header; says what is wrong with the bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, String> {
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or("it is shorter than 8 bytes")?;
        let length = usize::try_from(u64::from_le_bytes(*length))
            .ok()
            .filter(|n| *n <= HEADER_BYTES_MAX.min(rest.len()))
            .ok_or("its header is longer than the file")?;
        let (header, values) = rest.split_at(length);
        let mut header: Map<String, Value> =
            serde_json::from_slice(header).map_err(|e| format!("its header is not JSON: {e}"))?;
        let metadata = header.remove("__metadata__");
        let hash = metadata.as_ref().and_then(|metadata| metadata[HASH].as_str());
        let hash = hash.map(str::to_owned);
        let mut places = BTreeMap::new();
        for (name, place) in header {
            let place: Place =
                serde_json::from_value(place).map_err(|e| format!("tensor `{name}`: {e}"))?;
            place.check(values.len()).map_err(|why| format!("tensor `{name}` {why}"))?;
            places.insert(name, place);
        }
        Ok(Self { places, values, hash })
    }

    /// An error where the values are not those that were written.
    pub fn verify(&self) -> Result<(), String> {
        let found = self.hash.as_ref().map(|expected| (expected, hash(self.values)));
        match found.filter(|(expected, found)| *expected != found) {
            None => Ok(()),
            Some((expected, found)) => Err(format!(
                "it was changed or damaged after it was written: the hash of its values is {found}, \
                 not {expected}"
            )),
        }
    }

    /// The values of a tensor, which must have this shape.
    pub fn get(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        let place = self.places.get(name).ok_or_else(|| format!("it has no tensor `{name}`"))?;
        if place.shape != shape {
            return Err(format!(
                "tensor `{name}` has shape {:?}, but the network needs {shape:?}",
                place.shape
            ));
        }
        place.is("F32").map_err(|why| format!("tensor `{name}` {why}"))?;
        let (start, end) = place.data_offsets;
        let values = self.values[start..end].as_chunks::<4>().0;
        Ok(values.iter().map(|b| f32::from_le_bytes(*b)).collect())
    }

    /// The values of a tensor in double precision, where there is one of that name.
    pub fn wide(&self, name: &str) -> Result<Option<Vec<f64>>, String> {
        let Some(place) = self.places.get(name) else { return Ok(None) };
        place.is("F64").map_err(|why| format!("tensor `{name}` {why}"))?;
        let (start, end) = place.data_offsets;
        let values = self.values[start..end].as_chunks::<8>().0;
        Ok(Some(values.iter().map(|b| f64::from_le_bytes(*b)).collect()))
    }
}

impl Place {
    fn is(&self, dtype: &str) -> Result<(), String> {
        match self.dtype == dtype {
            true => Ok(()),
            false => Err(format!("has type {}, not {dtype}", self.dtype)),
        }
    }

    fn check(&self, values_bytes: usize) -> Result<(), String> {
        let value_bytes = match self.dtype.as_str() {
            "F32" => 4usize,
            "F64" => 8,
            other => return Err(format!("has type {other}, neither F32 nor F64")),
        };
        let (start, end) = self.data_offsets;
        if start > end || end > values_bytes {
            return Err("lies beyond the end of the file".into());
        }
        let bytes = self.shape.iter().try_fold(value_bytes, |n, side| n.checked_mul(*side));
        if bytes != Some(end - start) {
            return Err(format!("has shape {:?} but {} bytes", self.shape, end - start));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decode_after_encode_is_the_same() {
        let kernel: Vec<f32> = (0..6).map(|v| v as f32 / 3.0).collect();
        let bytes = encode(
            &[
                Tensor { name: "z/kernel", shape: &[2, 3], values: Values::F32(&kernel) },
                Tensor { name: "a/bias", shape: &[1], values: Values::F32(&[-0.0]) },
                Tensor { name: "wide", shape: &[2], values: Values::F64(&[0.1, -3.0]) },
            ],
            &[("format", "pt")],
        );
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert_eq!(header % 8, 0);
        let tensors = Tensors::decode(&bytes).unwrap();
        assert_eq!(tensors.get("z/kernel", &[2, 3]).unwrap(), kernel);
        assert_eq!(tensors.get("a/bias", &[1]).unwrap()[0].to_bits(), (-0.0f32).to_bits());
        assert_eq!(tensors.wide("wide").unwrap(), Some(vec![0.1, -3.0]));
        assert_eq!(tensors.wide("none").unwrap(), None);
        assert!(tensors.get("wide", &[2]).unwrap_err().contains("has type F64, not F32"));
        assert!(tensors.get("a/bias", &[2]).unwrap_err().contains("has shape [1]"));
        assert!(tensors.get("b", &[2]).unwrap_err().contains("no tensor `b`"));
        for cut in 0..bytes.len() {
            assert!(Tensors::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_flipped_bit_is_found_and_files_of_others_have_no_hash() {
        let tensor = Tensor { name: "a", shape: &[2], values: Values::F32(&[1.0, 2.0]) };
        let mut bytes = encode(&[tensor], &[]);
        assert_eq!(Tensors::decode(&bytes).unwrap().verify(), Ok(()));
        *bytes.last_mut().unwrap() ^= 1;
        let why = Tensors::decode(&bytes).unwrap().verify().unwrap_err();
        assert!(why.contains("changed or damaged"), "{why}");
        let header = json!({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}});
        let header = header.to_string();
        let length = (header.len() as u64).to_le_bytes();
        let bytes = [&length[..], header.as_bytes(), &[0; 4]].concat();
        assert_eq!(Tensors::decode(&bytes).unwrap().verify(), Ok(()));
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(
            shape in proptest::collection::vec(any::<usize>(), 0..4),
            offsets: (usize, usize),
            rest in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let header = json!({"a": {"dtype": "F32", "shape": shape, "data_offsets": offsets}});
            let header = header.to_string();
            let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
            bytes.extend_from_slice(header.as_bytes());
            bytes.extend_from_slice(&rest);
            if let Ok(tensors) = Tensors::decode(&bytes) {
                let _ = tensors.get("a", &shape);
            }
            let _ = Tensors::decode(&rest);
        }
    }
}
