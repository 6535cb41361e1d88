//! One idx file: two zero bytes, the value type, the number of dimensions, the dimensions as
//! big-endian 32-bit numbers, then the values, big-endian, in row-major order.

use crate::budget::Memory;
use crate::error::Error;
use crate::files::{Stream, stated_bytes};
use crate::records::{Records, Spool};
use crate::source::DataFile;
use std::path::Path;

/// Most dimensions that any supported content has.
const DIMENSIONS_MAX: usize = 4;
/// Most bytes that a header may state, so that products of sizes cannot overflow.
const FILE_TIB_MAX: u64 = 1024;

/// What a file's first bytes say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    /// Sizes; the first is the number of records.
    pub dimensions: Vec<u32>,
}

/// A file that was read once.
#[derive(Debug)]
pub struct File {
    /// Its first bytes.
    pub header: Header,
    /// As they are in the file.
    pub records: Records,
    pub file: DataFile,
}

/// Value types by their code in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    U8 = 0x08,
    I8 = 0x09,
    I16 = 0x0B,
    I32 = 0x0C,
    F32 = 0x0D,
    F64 = 0x0E,
}

impl Kind {
    const ALL: [Self; 6] = [Self::U8, Self::I8, Self::I16, Self::I32, Self::F32, Self::F64];

    fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::I16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// Stored values as numbers.
    pub fn convert(self, raw: &[u8], out: &mut [f32]) {
        fn each<const N: usize>(raw: &[u8], out: &mut [f32], convert: impl Fn([u8; N]) -> f32) {
            let values = raw.as_chunks::<N>().0.iter();
            out.iter_mut().zip(values).for_each(|(out, value)| *out = convert(*value));
        }
        match self {
            Self::U8 => each::<1>(raw, out, |[v]| f32::from(v)),
            Self::I8 => each::<1>(raw, out, |v| f32::from(i8::from_be_bytes(v))),
            Self::I16 => each::<2>(raw, out, |v| f32::from(i16::from_be_bytes(v))),
            Self::I32 => each::<4>(raw, out, |v| i32::from_be_bytes(v) as f32),
            Self::F32 => each::<4>(raw, out, f32::from_be_bytes),
            Self::F64 => each::<8>(raw, out, |v| f64::from_be_bytes(v) as f32),
        }
    }
}

impl Header {
    pub fn records(&self) -> u64 {
        u64::from(self.dimensions[0])
    }

    /// Values of one record.
    pub fn record_len(&self) -> usize {
        self.dimensions[1..].iter().map(|&d| d as usize).product()
    }

    fn record_bytes(&self) -> u64 {
        (self.record_len() * self.kind.bytes()) as u64
    }
}

/// Reads the header alone.
pub fn header(path: &Path) -> Result<Header, Error> {
    read_header(path, &mut Stream::open(path)?)
}

/// Whether a file whose unpacked size is known without unpacking holds what its header states.
pub fn check_length(path: &Path, header: &Header) -> Result<(), Error> {
    let Some(bytes) = stated_bytes(path)? else { return Ok(()) };
    let (records, record_bytes) = (header.records(), header.record_bytes());
    let values = bytes.saturating_sub(4 + 4 * header.dimensions.len() as u64);
    let (whole, part) = (values / record_bytes, values % record_bytes);
    if whole < records {
        let message =
            format!("record {whole} of {records} is cut short ({part} of {record_bytes} bytes)");
        return Err(Error::corrupt(path, message));
    }
    Ok(())
}

/// What looks at the values of a file as they are read.
pub type Look<'a> = &'a mut dyn FnMut(&Header, usize, &[f32]) -> Result<(), Error>;

/// Reads a file once, shows its values to `look` (the number of the first, and some of them), and
/// keeps what there is memory for.
pub fn read(path: &Path, memory: &Memory, mut look: Option<Look<'_>>) -> Result<File, Error> {
    let mut stream = Stream::open(path)?;
    let header = read_header(path, &mut stream)?;
    let (records, record_bytes) = (header.records(), header.record_bytes());
    let total = records * record_bytes;
    let place = |at: usize| format!("record {} of {records}", at as u64 / record_bytes);
    let start = 4 + 4 * header.dimensions.len() as u64;
    let plain = stream.plain().map(|object| (object.clone(), start));
    let mut spool = Spool::of(path, Some(total), plain, memory)?;
    let (mut values, mut seen) = (Vec::new(), 0);
    let read = stream.pass(total, place, |raw| {
        spool.push(raw)?;
        let count = raw.len() / header.kind.bytes();
        if header.kind.is_float() || look.is_some() {
            values.resize(count, 0.0);
            header.kind.convert(raw, &mut values);
            check_finite(path, &header, seen, &values)?;
        }
        if let Some(look) = &mut look {
            look(&header, seen, &values)?;
        }
        seen += count;
        Ok(())
    })?;
    let (whole, part) = (read / record_bytes, read % record_bytes);
    if whole < records {
        let message =
            format!("record {whole} of {records} is cut short ({part} of {record_bytes} bytes)");
        return Err(Error::corrupt(path, message));
    }
    if !stream.ended()? {
        let message = format!("it goes on after the {records} records that its header states");
        return Err(Error::corrupt(path, message));
    }
    let kept = Records::new(record_bytes as usize).with(spool.finish()?, records);
    Ok(File { header, records: kept, file: stream.data_file() })
}

fn read_header(path: &Path, stream: &mut Stream) -> Result<Header, Error> {
    let place = |_| "header".to_string();
    let mut magic = [0; 4];
    let short = || Error::corrupt(path, "the header is cut short");
    if stream.fill(&mut magic, place)? < 4 {
        return Err(short());
    }
    let [0, 0, kind, count @ 1..=u8::MAX] = magic else {
        let [a, b, c, d] = magic;
        let message = format!(
            "not an idx file: it begins with {a:02x} {b:02x} {c:02x} {d:02x}, not with 00 00, \
             a value type and the number of dimensions"
        );
        return Err(Error::corrupt(path, message));
    };
    let Some(&kind) = Kind::ALL.iter().find(|k| **k as u8 == kind) else {
        return Err(Error::corrupt(
            path,
            format!("not an idx file: value type {kind:#04x} is unknown"),
        ));
    };
    if usize::from(count) > DIMENSIONS_MAX {
        let message = format!("it has {count} dimensions; at most {DIMENSIONS_MAX} are supported");
        return Err(Error::corrupt(path, message));
    }
    let mut raw = vec![0; 4 * usize::from(count)];
    if stream.fill(&mut raw, place)? < raw.len() {
        return Err(short());
    }
    let dimensions: Vec<u32> =
        raw.as_chunks::<4>().0.iter().map(|d| u32::from_be_bytes(*d)).collect();
    check(path, Header { kind, dimensions })
}

/// Refuses nothing at all and more than fits, so that later products cannot overflow.
fn check(path: &Path, header: Header) -> Result<Header, Error> {
    let sizes: Vec<String> = header.dimensions.iter().map(u32::to_string).collect();
    let sizes = sizes.join("×");
    let product = header
        .dimensions
        .iter()
        .try_fold(header.kind.bytes() as u64, |product, &d| product.checked_mul(u64::from(d)));
    match product {
        Some(0) => Err(Error::corrupt(path, format!("it holds no values ({sizes})"))),
        Some(bytes) if bytes <= FILE_TIB_MAX << 40 => Ok(header),
        _ => {
            let message = format!(
                "its header states {sizes} values, more than the limit of {FILE_TIB_MAX} TiB"
            );
            Err(Error::corrupt(path, message))
        }
    }
}

fn check_finite(path: &Path, header: &Header, first: usize, values: &[f32]) -> Result<(), Error> {
    let Some(at) = values.iter().position(|v| !v.is_finite()) else { return Ok(()) };
    let record = (first + at) / header.record_len();
    let message =
        format!("record {record} holds {}, where a finite number is expected", values[at]);
    Err(Error::corrupt(path, message))
}
