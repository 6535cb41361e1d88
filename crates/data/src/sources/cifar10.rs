//! CIFAR-10's binary batches: records of one label byte and 32×32 pixels in three planes (red,
//! green, blue), plain or packed.
//!
//! The files of a folder are read side by side, in the order of their names. Channels
//! become innermost as records are read.

use crate::budget::Memory;
use crate::error::Error;
use crate::files::{self, Stream};
use crate::records::{Blob, Records, Spool};
use crate::scale::Scale;
use crate::source::{DataFile, Source, Target, Targets};
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

/// CIFAR-10 examples.
#[derive(Debug)]
pub struct Cifar10 {
    records: Records,
    files: Vec<DataFile>,
}

impl Cifar10 {
    /// Reads the files that [`locate`] found once, with a thread for each core.
    pub fn open(paths: &[PathBuf], memory: &Memory) -> Result<Self, Error> {
        let (mut records, mut files) = (Records::new(RECORD), Vec::new());
        for read in read_all(paths, memory)? {
            records = records.with(read.records, read.count);
            files.push(read.file);
        }
        Ok(Self { records, files })
    }
}

/// The records of one file.
struct Batch {
    records: Blob,
    count: u64,
    file: DataFile,
}

impl Source for Cifar10 {
    fn len(&self) -> u64 {
        self.records.len()
    }

    fn shape(&self) -> Shape {
        SHAPE
    }

    fn target(&self) -> Target {
        Target::Class { classes: CLASSES }
    }

    fn read(
        &self,
        ids: &[u64],
        scale: &Scale,
        room: &mut Vec<u8>,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let mut pixels = [0; PIXELS];
        self.records.each(ids, room, |i, record| {
            interleave(&record[1..], &mut pixels);
            scale.bytes(&pixels, &mut out[i * PIXELS..(i + 1) * PIXELS]);
        })
    }

    fn targets(&self, ids: &[u64], room: &mut Vec<u8>, out: &mut Targets) -> Result<(), Error> {
        let Targets::Classes(classes) = out else { return Ok(()) };
        self.records.each(ids, room, |_, record| classes.push(u32::from(record[0])))
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
    if !files::is_folder(path) {
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
            None => read(path, None)?.count * RECORD as u64,
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
fn read_all(paths: &[PathBuf], memory: &Memory) -> Result<Vec<Batch>, Error> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(paths.len());
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<Result<Batch, Error>>>> =
        paths.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(i) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < paths.len())
                {
                    let result = read(&paths[i], Some(memory));
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

/// Reads a file once; its records are kept where a budget is given.
fn read(path: &Path, memory: Option<&Memory>) -> Result<Batch, Error> {
    let stated = files::stated_bytes(path)?;
    if let Some(bytes) = stated {
        check_size(path, bytes)?;
    }
    let total = stated.map_or(String::new(), |b| format!(" of {}", b / RECORD as u64));
    let mut stream = Stream::open(path)?;
    let plain = stream.plain().map(|object| (object.clone(), 0));
    let mut spool = match memory {
        Some(memory) => Spool::of(path, stated, plain, memory)?,
        None => Spool::nothing(path),
    };
    let (mut record, mut count) = ([0; RECORD], 0);
    loop {
        match stream.fill(&mut record, |_| format!("record {count}{total}"))? {
            0 if count == 0 => return Err(Error::corrupt(path, "it holds no records")),
            0 => return Ok(Batch { records: spool.finish()?, count, file: stream.data_file() }),
            RECORD => {
                check_label(path, count, record[0])?;
                spool.push(&record)?;
                count += 1;
            }
            n => {
                return Err(Error::corrupt(
                    path,
                    format!("record {count}{total} is cut short ({n} of {RECORD} bytes)"),
                ));
            }
        }
    }
}

fn check_label(path: &Path, record: u64, label: u8) -> Result<(), Error> {
    if usize::from(label) < CLASSES {
        return Ok(());
    }
    let message = format!("record {record} has label {label}, but CIFAR-10 has labels 0 to 9");
    Err(Error::corrupt(path, message))
}

/// Planes of red, green and blue as pixels.
fn interleave(planes: &[u8], pixels: &mut [u8; PIXELS]) {
    let (red, rest) = planes.split_at(PLANE);
    let (green, blue) = rest.split_at(PLANE);
    for (pixel, ((r, g), b)) in pixels.chunks_exact_mut(3).zip(red.iter().zip(green).zip(blue)) {
        pixel.copy_from_slice(&[*r, *g, *b]);
    }
}

fn check_size(path: &Path, bytes: u64) -> Result<(), Error> {
    let (whole, part) = (bytes / RECORD as u64, bytes % RECORD as u64);
    if part != 0 {
        return Err(Error::corrupt(
            path,
            format!("record {whole} is cut short ({part} of {RECORD} bytes)"),
        ));
    }
    Ok(())
}
