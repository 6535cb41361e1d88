//! The bytes of event files: TFRecords of protocol buffers.
//!
//! After TensorFlow's `record_writer.h`, `event.proto` and `summary.proto`. Pure.

/// The event that every file begins with.
pub fn version_event(unix_seconds: f64) -> Vec<u8> {
    let mut event = Vec::new();
    put_double(&mut event, 1, unix_seconds);
    put_bytes(&mut event, 3, b"brain.Event:2");
    event
}

/// An event whose summary has these values.
pub fn summary_event(unix_seconds: f64, step: u64, values: &[Vec<u8>]) -> Vec<u8> {
    let mut summary = Vec::new();
    values.iter().for_each(|value| put_bytes(&mut summary, 1, value));
    let mut event = Vec::new();
    put_double(&mut event, 1, unix_seconds);
    put_number(&mut event, 2, step);
    put_bytes(&mut event, 5, &summary);
    event
}

/// A value of a summary: one number under a tag.
pub fn scalar(tag: &str, value: f64) -> Vec<u8> {
    let mut entry = Vec::new();
    put_bytes(&mut entry, 1, tag.as_bytes());
    put_varint(&mut entry, 2 << 3 | 5);
    entry.extend_from_slice(&(value as f32).to_bits().to_le_bytes());
    entry
}

/// A TFRecord: length, masked CRC of the length, data, masked CRC of the data.
pub fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut bytes = Vec::with_capacity(data.len() + 16);
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&masked_crc(&length).to_le_bytes());
    bytes.extend_from_slice(data);
    bytes.extend_from_slice(&masked_crc(data).to_le_bytes());
    bytes
}

fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bit by bit: a few hundred bytes per line do not need a table.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// A field that is a whole number.
pub fn put_number(bytes: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(bytes, field << 3);
    put_varint(bytes, value);
}

/// A field that is a `double`.
pub fn put_double(bytes: &mut Vec<u8>, field: u64, value: f64) {
    put_varint(bytes, field << 3 | 1);
    bytes.extend_from_slice(&value.to_bits().to_le_bytes());
}

/// A field that is text, bytes or a message.
pub fn put_bytes(bytes: &mut Vec<u8>, field: u64, value: &[u8]) {
    put_varint(bytes, field << 3 | 2);
    put_varint(bytes, value.len() as u64);
    bytes.extend_from_slice(value);
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn crc_matches_the_published_vectors() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    /// The data of all records of a file, whose sums are checked.
    pub fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            assert_eq!(masked_crc(&bytes[..8]).to_le_bytes(), bytes[8..12]);
            let data = &bytes[12..12 + length];
            assert_eq!(masked_crc(data).to_le_bytes(), bytes[12 + length..16 + length]);
            events.push(data.to_vec());
            bytes = &bytes[16 + length..];
        }
        events
    }

    /// The fields of a message, as its bytes tell: numbers as they are, floats by their bits.
    #[derive(Debug, Clone, PartialEq)]
    pub enum Field {
        Number(u64),
        Bytes(Vec<u8>),
    }

    /// A message by its field numbers.
    pub fn message(mut bytes: &[u8]) -> BTreeMap<u64, Vec<Field>> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..).step_by(7) {
                let (first, rest) = bytes.split_first().unwrap();
                value |= u64::from(first & 0x7f) << shift;
                *bytes = rest;
                if first & 0x80 == 0 {
                    return value;
                }
            }
            unreachable!("a varint ends")
        }
        fn fixed(bytes: &mut &[u8], width: usize) -> Vec<u8> {
            let (value, rest) = bytes.split_at(width);
            *bytes = rest;
            value.to_vec()
        }
        let mut fields: BTreeMap<u64, Vec<Field>> = BTreeMap::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = match key & 7 {
                0 => Field::Number(varint(&mut bytes)),
                1 => {
                    let bits = fixed(&mut bytes, 8).try_into().unwrap();
                    Field::Number(u64::from_le_bytes(bits))
                }
                2 => {
                    let length = varint(&mut bytes) as usize;
                    Field::Bytes(fixed(&mut bytes, length))
                }
                5 => {
                    let bits = fixed(&mut bytes, 4).try_into().unwrap();
                    Field::Number(u32::from_le_bytes(bits).into())
                }
                kind => panic!("wire type {kind}"),
            };
            fields.entry(key >> 3).or_default().push(value);
        }
        fields
    }
}
