//! One checkpoint as bytes: all that a run needs to go on with the same bits.
//!
//! Owns the format, version 2:
//!
//! ```text
//! magic      8 bytes  PLANARIA
//! version    u32      2
//! length     u32      of the header
//! header     JSON     recipe hash, marks of the data, run state, lengths of the buffers below
//! buffers    f32      parameters, state, each optimizer buffer
//! trailer    32 bytes SHA-256 of everything before
//! ```
//!
//! All numbers are little-endian. Never touches files; [`super::shelf`] does.

use crate::training::state::State;
use planaria_learn::Weights;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

const MAGIC: &[u8; 8] = b"PLANARIA";
const VERSION: u32 = 2;
const PREFIX_BYTES: usize = 16;
const TRAILER_BYTES: usize = 32;

/// A run at the end of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// SHA-256 of the run's `recipe.yaml`.
    pub recipe_sha256: String,
    /// What the data was: names (of files) and marks of their content.
    pub data: Vec<(String, String)>,
    /// How far the run has come.
    pub state: State,
    /// All that training changes.
    pub weights: Weights,
}

#[derive(Serialize, Deserialize)]
struct Header {
    recipe_sha256: String,
    data: Vec<(String, String)>,
    run: State,
    parameters: usize,
    state: usize,
    optimizer: Vec<usize>,
}

impl Checkpoint {
    /// The checkpoint as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let weights = &self.weights;
        let header = serde_json::to_vec(&Header {
            recipe_sha256: self.recipe_sha256.clone(),
            data: self.data.clone(),
            run: self.state.clone(),
            parameters: weights.parameters.len(),
            state: weights.state.len(),
            optimizer: weights.optimizer.iter().map(Vec::len).collect(),
        })
        .expect("a header has string keys only");
        let values: usize = buffers(weights).map(<[f32]>::len).sum();
        let mut bytes =
            Vec::with_capacity(PREFIX_BYTES + header.len() + 4 * values + TRAILER_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        let header_bytes = u32::try_from(header.len()).expect("a header is a few kilobytes");
        bytes.extend_from_slice(&header_bytes.to_le_bytes());
        bytes.extend_from_slice(&header);
        for buffer in buffers(weights) {
            bytes.extend(buffer.iter().flat_map(|v| v.to_le_bytes()));
        }
        let digest = Sha256::digest(&bytes);
        bytes.extend_from_slice(&digest);
        bytes
    }

    /// Reads it back; says what is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let body = checked_body(bytes)?;
        let header_bytes = u32_at(body, 12) as usize;
        let header = body
            .get(PREFIX_BYTES..PREFIX_BYTES + header_bytes)
            .ok_or("its header is longer than the file")?;
        let header: Header =
            serde_json::from_slice(header).map_err(|e| format!("its header is not valid: {e}"))?;
        let values = body[PREFIX_BYTES + header_bytes..].as_chunks::<4>().0;
        let mut lengths =
            [header.parameters, header.state].into_iter().chain(header.optimizer.clone());
        let expected = lengths.try_fold(0usize, |sum, n| sum.checked_add(n));
        if expected.and_then(|n| n.checked_mul(4)) != Some(body.len() - PREFIX_BYTES - header_bytes)
        {
            return Err("its buffers do not have the lengths its header names".into());
        }
        let mut values = values.iter().map(|b| f32::from_le_bytes(*b));
        let mut take = |n: usize| values.by_ref().take(n).collect::<Vec<f32>>();
        let weights = Weights {
            parameters: take(header.parameters),
            state: take(header.state),
            optimizer: header.optimizer.iter().map(|n| take(*n)).collect(),
        };
        let Header { recipe_sha256, data, run: state, .. } = header;
        Ok(Self { recipe_sha256, data, state, weights })
    }
}

/// Everything before the trailer, if magic, version and digest are right.
fn checked_body(bytes: &[u8]) -> Result<&[u8], String> {
    if bytes.len() < PREFIX_BYTES + TRAILER_BYTES {
        return Err(format!("it is cut short at {} bytes", bytes.len()));
    }
    if &bytes[..8] != MAGIC {
        return Err("it is not a planaria checkpoint".into());
    }
    let version = u32_at(bytes, 8);
    let (body, trailer) = bytes.split_at(bytes.len() - TRAILER_BYTES);
    if Sha256::digest(body).as_slice() != trailer {
        return Err("its SHA-256 does not match: bytes were changed or cut off".into());
    }
    if version != VERSION {
        return Err(format!(
            "it has format version {version}; this planaria reads version {VERSION}"
        ));
    }
    Ok(body)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn buffers(weights: &Weights) -> impl Iterator<Item = &[f32]> {
    [&weights.parameters, &weights.state].into_iter().chain(&weights.optimizer).map(Vec::as_slice)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn sample(step: u64) -> Checkpoint {
        Checkpoint {
            recipe_sha256: "ab".repeat(32),
            data: vec![("a/train-images".into(), "01".repeat(16))],
            state: State { step, epoch: 2, batch: 7, seconds_total: 0.1 + 0.2, ..State::default() },
            weights: Weights {
                parameters: vec![1.5, -0.0, f32::MIN_POSITIVE / 2.0, step as f32],
                state: vec![0.25],
                optimizer: vec![vec![1e-20; 4], vec![]],
            },
        }
    }

    proptest! {
        #[test]
        fn decode_after_encode_is_the_same(
            step: u64,
            examples: u64,
            loss_sum in -1e300f64..1e300,
            parameters in proptest::collection::vec(any::<u32>(), 0..50),
            state in proptest::collection::vec(any::<u32>(), 0..10),
            optimizer in proptest::collection::vec(proptest::collection::vec(any::<u32>(), 0..50), 0..4),
        ) {
            let floats = |bits: &[u32]| bits.iter().map(|b| f32::from_bits(*b)).collect::<Vec<_>>();
            let mut checkpoint = sample(step);
            checkpoint.state.examples = examples;
            checkpoint.state.this_epoch.loss_sum = loss_sum;
            checkpoint.weights = Weights {
                parameters: floats(&parameters),
                state: floats(&state),
                optimizer: optimizer.iter().map(|b| floats(b)).collect(),
            };
            let bytes = checkpoint.encode();
            let back = Checkpoint::decode(&bytes).unwrap();
            // Bytes are compared because NaN is unequal to itself.
            prop_assert_eq!(back.encode(), bytes);
            prop_assert_eq!(back.state, checkpoint.state);
            prop_assert_eq!(back.data, checkpoint.data);
        }

        #[test]
        fn a_flipped_bit_or_a_cut_is_always_seen(at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let bytes = sample(9).encode();
            let at = at.index(bytes.len());
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            prop_assert!(Checkpoint::decode(&flipped).is_err());
            prop_assert!(Checkpoint::decode(&bytes[..at]).is_err());
        }

        #[test]
        fn hostile_bytes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = [MAGIC.as_slice(), &VERSION.to_le_bytes(), &body].concat();
            let digest = Sha256::digest(&bytes);
            bytes.extend_from_slice(&digest);
            let _ = Checkpoint::decode(&bytes);
            let _ = Checkpoint::decode(&body);
        }
    }

    #[test]
    fn lengths_that_overflow_are_refused() {
        let header = format!(
            r#"{{"recipe_sha256":"","data":[],"run":{},"parameters":{},"state":{},"optimizer":[2]}}"#,
            serde_json::to_string(&State::default()).unwrap(),
            usize::MAX,
            usize::MAX / 2,
        );
        let mut bytes = [MAGIC.as_slice(), &VERSION.to_le_bytes()].concat();
        bytes.extend_from_slice(&(header.len() as u32).to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        let digest = Sha256::digest(&bytes);
        bytes.extend_from_slice(&digest);
        assert!(Checkpoint::decode(&bytes).unwrap_err().contains("lengths"));
    }
}
