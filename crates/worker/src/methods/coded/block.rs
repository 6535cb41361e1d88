//! What a worker has of the data: the rows of a slot, the labels of all rows, and held-out batches.
//! Each is made of what came from the source, and nothing of it where that is not whole.

use super::Value;
use planaria_data::Targets;
use planaria_learn::linear::number::Bounds;
use planaria_protocol::methods::coded::Travel;

/// What a slot stores.
#[derive(Debug, Clone, PartialEq)]
pub struct Block<E> {
    /// Row by row.
    pub rows: Vec<E>,
    /// What bounds products of all rows of the data; floats have no such bounds.
    pub bounds: Bounds,
}

impl<E: Value> Block<E> {
    /// Of rows of `width` values, and the head that came before them.
    pub fn of(rows: Vec<E>, width: usize, head: &[u8]) -> Option<Self> {
        let bounds = match head {
            [] => Bounds::new(width),
            _ => serde_json::from_slice(head).ok()?,
        };
        Some(Self { rows, bounds })
    }
}

/// The id of an example, and its target.
pub type Label = (u64, f64);

/// Length of a label, in bytes.
pub const LABEL_BYTES: usize = 16;

/// The labels that some bytes are.
pub fn labels(bytes: &[u8]) -> Option<Vec<Label>> {
    let (labels, rest) = bytes.as_chunks::<LABEL_BYTES>();
    let label = |bytes: &[u8; LABEL_BYTES]| {
        let (id, target) = bytes.split_first_chunk::<8>()?;
        let target: [u8; 8] = target.try_into().ok()?;
        Some((u64::from_le_bytes(*id), f64::from_le_bytes(target)))
    };
    rest.is_empty().then(|| labels.iter().map(label).collect::<Option<Vec<Label>>>())?
}

/// The bytes of some labels.
pub fn label_bytes(labels: &[Label]) -> Vec<u8> {
    let bytes = |(id, target): &Label| [id.to_le_bytes(), target.to_le_bytes()].concat();
    labels.iter().flat_map(bytes).collect()
}

/// A batch of held-out rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// Features, row by row.
    pub inputs: Vec<f32>,
    /// What should be answered.
    pub targets: Targets,
}

impl Held {
    /// Of rows of `features` values and a target each, and the head that came before them.
    pub fn of(rows: &[[u8; 4]], features: usize, head: &[u8]) -> Option<Self> {
        let (mut inputs, mut last) = (Vec::new(), Vec::new());
        for row in rows.chunks_exact(features + 1) {
            let (target, values) = row.split_last()?;
            inputs.extend(values.iter().map(|v| f32::from_le_bytes(*v)));
            last.push(*target);
        }
        let targets = match head {
            [0] => Targets::Classes(last.into_iter().map(u32::from_le_bytes).collect()),
            [1] => Targets::Values(last.into_iter().map(f32::from_le_bytes).collect()),
            _ => return None,
        };
        Some(Self { inputs, targets })
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.inputs.len() * f32::BYTES
    }
}

/// Four bytes each, which the head says the meaning of.
pub fn words(bytes: &[u8]) -> Option<Vec<[u8; 4]>> {
    let (words, rest) = bytes.as_chunks::<4>();
    rest.is_empty().then(|| words.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_batches_come_back_and_what_is_none_does_not() {
        let some = vec![(7, -1.0), (u64::MAX, 0.25)];
        let bytes = label_bytes(&some);
        assert_eq!(bytes.len(), 2 * LABEL_BYTES);
        assert_eq!(labels(&bytes), Some(some));
        assert_eq!(labels(&bytes[1..]), None);

        let rows = [1.5f32.to_le_bytes(), 2.0f32.to_le_bytes(), 3u32.to_le_bytes()];
        let bytes = rows.concat();
        assert_eq!(words(&bytes[1..]), None);
        let held = Held::of(&words(&bytes).unwrap(), 2, &[0]).unwrap();
        assert_eq!(held, Held { inputs: vec![1.5, 2.0], targets: Targets::Classes(vec![3]) });
        assert_eq!(Held::of(&rows, 2, &[2]), None);
        assert_eq!(Block::<f64>::of(vec![1.0], 1, b"{"), None);
        assert!(Block::<f64>::of(vec![1.0], 1, b"").is_some());
    }
}
