//! CIFAR-10's binary batches: records of one label byte and 32×32 pixels in three planes (red,
//! green, blue), plain or packed.
//!
//! The files of a folder are read side by side, in the order of their names. Pixels are kept as
//! bytes with channels innermost.

use crate::error::Error;
use crate::files::{self, SOURCE_BYTES_MAX, Stream};
use crate::memory::prefetch;
use crate::scale::Scale;
use crate::source::{DataFile, Source, Target};
use crate::sources::Role;
use planaria_recipe::shape::Shape;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

const PLANE: usize = 32 * 32;
const PIXELS: usize = 3 * PLANE;
const RECORD: usize = PIXELS + 1;
const CLASSES: usize = 10;

/// What the examples look like.
pub const SHAPE: Shape = Shape::Image { height: 32, width: 32, channels: 3 };

/// CIFAR-10 examples in memory.
#[derive(Debug)]
pub struct Cifar10 {
    batches: Vec<Records>,
    /// First id of each batch.
    starts: Vec<u64>,
    len: u64,
    files: Vec<DataFile>,
}

/// The records of one file.
#[derive(Debug, Default)]
struct Records {
    labels: Vec<u8>,
    pixels: Vec<u8>,
    /// Of the file's content.
    mark: u128,
}

impl Cifar10 {
    /// Reads the files that [`locate`] found, with a thread for each core.
    pub fn open(paths: &[PathBuf]) -> Result<Self, Error> {
        let batches = read_all(paths)?;
        let file = |(path, batch): (&PathBuf, &Records)| files::data_file(path, Some(batch.mark));
        let files = paths.iter().zip(&batches).map(file).collect::<Result<_, _>>()?;
        let mut starts = Vec::with_capacity(batches.len());
        let mut len = 0;
        for batch in &batches {
            starts.push(len);
            len += batch.labels.len() as u64;
        }
        Ok(Self { batches, starts, len, files })
    }

    fn find(&self, id: u64) -> (&Records, usize) {
        let batch = self.starts.partition_point(|&start| start <= id) - 1;
        (&self.batches[batch], (id - self.starts[batch]) as usize)
    }

    fn pixels(&self, id: u64) -> &[u8] {
        let (batch, row) = self.find(id);
        &batch.pixels[row * PIXELS..(row + 1) * PIXELS]
    }
}

impl Source for Cifar10 {
    fn len(&self) -> u64 {
        self.len
    }

    fn shape(&self) -> Shape {
        SHAPE
    }

    fn target(&self) -> Target {
        Target::Class { classes: CLASSES }
    }

    fn class(&self, id: u64) -> u32 {
        let (batch, row) = self.find(id);
        u32::from(batch.labels[row])
    }

    fn values(&self, _id: u64) -> &[f32] {
        &[]
    }

    fn prefetch(&self, id: u64) {
        prefetch(self.pixels(id));
    }

    fn read(&self, id: u64, scale: &Scale, out: &mut [f32]) -> Result<(), Error> {
        scale.bytes(self.pixels(id), out);
        Ok(())
    }

    fn files(&self) -> &[DataFile] {
        &self.files
    }
}

/// Whether a file's name is one of CIFAR-10's.
pub fn is_name(name: &str) -> bool {
    role(name).is_some()
}

/// The files that hold a role's examples: the file itself, or those of the folder.
pub fn locate(path: &Path, role_wanted: Role) -> Result<Vec<PathBuf>, Error> {
    if !path.is_dir() {
        return Ok(vec![path.into()]);
    }
    let names = files::names(path)?;
    let wanted = match role_wanted {
        Role::Train => Role::Train,
        Role::Validation | Role::Test => Role::Test,
    };
    let found: Vec<PathBuf> =
        names.iter().filter(|n| role(n) == Some(wanted)).map(|n| path.join(n)).collect();
    if found.is_empty() {
        let name = if wanted == Role::Train { "data_batch_*.bin" } else { "test_batch.bin" };
        let there = files::listing(&names);
        return Err(Error::missing(path, format!("has no `{name}` (or .xz, .gz); {there}")));
    }
    Ok(found)
}

/// Number of examples by what the files state, without unpacking; .gz files are unpacked.
pub fn count(paths: &[PathBuf]) -> Result<u64, Error> {
    let mut total = 0;
    for path in paths {
        let bytes = match files::stated_bytes(path)? {
            Some(bytes) => bytes,
            None => (read(path)?.labels.len() * RECORD) as u64,
        };
        check_size(path, bytes)?;
        total += bytes / RECORD as u64;
    }
    Ok(total)
}

fn role(name: &str) -> Option<Role> {
    let stem = files::unpacked_name(name).strip_suffix(".bin")?;
    match stem {
        "test_batch" => Some(Role::Test),
        _ => stem.starts_with("data_batch").then_some(Role::Train),
    }
}

/// Reads all files, each by the next free thread. The first failure in the order of names is told.
fn read_all(paths: &[PathBuf]) -> Result<Vec<Records>, Error> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(paths.len());
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<Result<Records, Error>>>> =
        paths.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(i) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < paths.len())
                {
                    let result = read(&paths[i]);
                    *done[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                }
            });
        }
    });
    done.into_iter()
        .map(|slot| {
            let slot = slot.into_inner().unwrap_or_else(PoisonError::into_inner);
            slot.expect("the threads took every file before the scope ended")
        })
        .collect()
}

fn read(path: &Path) -> Result<Records, Error> {
    let stated = files::stated_bytes(path)?;
    if let Some(bytes) = stated {
        check_size(path, bytes)?;
    }
    let total = stated.map_or(String::new(), |b| format!(" of {}", b / RECORD as u64));
    let mut stream = Stream::open(path)?;
    let mut records = Records::default();
    // Untouched room costs nothing; without it, the buffer grows as it fills.
    let _ = records.pixels.try_reserve_exact(stated.unwrap_or(0) as usize);
    let mut record = [0; RECORD];
    loop {
        let number = records.labels.len();
        let filled = stream.fill(&mut record, |_| format!("record {number}{total}"))?;
        match filled {
            0 if number == 0 => return Err(Error::corrupt(path, "it holds no records")),
            0 => return Ok(Records { mark: stream.mark(), ..records }),
            RECORD => take(path, &mut records, &record)?,
            n => {
                return Err(Error::corrupt(
                    path,
                    format!("record {number}{total} is cut short ({n} of {RECORD} bytes)"),
                ));
            }
        }
    }
}

fn take(path: &Path, records: &mut Records, record: &[u8; RECORD]) -> Result<(), Error> {
    let number = records.labels.len();
    let label = record[0];
    if usize::from(label) >= CLASSES {
        return Err(Error::corrupt(
            path,
            format!("record {number} has label {label}, but CIFAR-10 has labels 0 to 9"),
        ));
    }
    if ((number + 1) * RECORD) as u64 > SOURCE_BYTES_MAX {
        return Err(too_large(path));
    }
    records.labels.push(label);
    let start = records.pixels.len();
    records.pixels.resize(start + PIXELS, 0);
    let (red, rest) = record[1..].split_at(PLANE);
    let (green, blue) = rest.split_at(PLANE);
    let pixels = records.pixels[start..].chunks_exact_mut(3);
    for (pixel, ((r, g), b)) in pixels.zip(red.iter().zip(green).zip(blue)) {
        pixel.copy_from_slice(&[*r, *g, *b]);
    }
    Ok(())
}

fn check_size(path: &Path, bytes: u64) -> Result<(), Error> {
    if bytes > SOURCE_BYTES_MAX {
        return Err(too_large(path));
    }
    let (whole, part) = (bytes / RECORD as u64, bytes % RECORD as u64);
    if part != 0 {
        return Err(Error::corrupt(
            path,
            format!("record {whole} is cut short ({part} of {RECORD} bytes)"),
        ));
    }
    Ok(())
}

fn too_large(path: &Path) -> Error {
    let limit = SOURCE_BYTES_MAX >> 30;
    Error::corrupt(path, format!("it holds more than {limit} GiB, which is the limit"))
}
