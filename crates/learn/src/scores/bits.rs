//! A sum as the hexadecimal digits of its bits: JSON holds neither NaN nor infinity, and a loss
//! that is not finite must be seen as such.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

pub fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
    format!("{:016x}", value.to_bits()).serialize(to)
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let digits = String::deserialize(from)?;
    u64::from_str_radix(&digits, 16).map(f64::from_bits).map_err(D::Error::custom)
}
