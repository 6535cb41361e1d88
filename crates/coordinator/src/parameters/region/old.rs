//! What processes before this one have left: files, or the memory that stands in for them.
//!
//! Read, never mapped: a file that another cuts short is an error and not a fault.

use super::layout::{APPLIED, COMMITTED, FIELDS_BYTES, SNAPSHOT};
use super::memory::Memory;
use super::{Backing, Identity, MAGIC, Marked, Place, Shape, VERSION, marked};
use planaria_protocol::plain;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub struct Old {
    /// The higher, the newer.
    pub serial: u64,
    what: What,
}

enum What {
    File(PathBuf),
    Memory(Arc<Memory>),
}

/// All of a server's, the newest first.
pub fn all(place: &Place) -> io::Result<Vec<Old>> {
    let mut olds = match &place.backing {
        Backing::Memory => Vec::new(),
        Backing::Folder(folder) => files(folder, place.index)?,
        Backing::Shared(shared) => {
            let all = shared.lock();
            let own = all.iter().filter_map(|memory| {
                let (index, serial) = memory.shared?;
                let what = What::Memory(memory.clone());
                (index == place.index).then_some(Old { serial, what })
            });
            own.collect()
        }
    };
    olds.sort_by_key(|old| std::cmp::Reverse(old.serial));
    Ok(olds)
}

/// Where a new file of a server is made.
pub fn name(index: u32, serial: u64) -> String {
    format!("server-{index}-{serial}-{}.slots", std::process::id())
}

fn files(folder: &Path, index: u32) -> io::Result<Vec<Old>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let rest = name.strip_prefix(&format!("server-{index}-"));
        let rest = rest.and_then(|rest| rest.strip_suffix(".slots")?.split_once('-'));
        if let Some(serial) = rest.and_then(|(serial, _)| serial.parse().ok()) {
            found.push(Old { serial, what: What::File(path) });
        }
    }
    Ok(found)
}

impl Old {
    /// To be told by.
    pub fn name(&self) -> String {
        match &self.what {
            What::File(path) => path.display().to_string(),
            What::Memory(_) => format!("memory {}", self.serial),
        }
    }

    /// Opens it and compares what it says of itself with what is asked for.
    pub fn open(&self, identity: &Identity, index: u32) -> Result<Opened, String> {
        let source = match &self.what {
            What::File(path) => plain::open(path).map(Opened::File).map_err(unreadable)?,
            What::Memory(memory) => Opened::Memory(memory.clone()),
        };
        let mut bytes = [0; FIELDS_BYTES];
        source.read(0, &mut bytes).map_err(unreadable)?;
        let fields = Fields::decode(&bytes);
        if fields.magic != MAGIC || fields.version != VERSION {
            return Err("it is not a server's values, or not whole".into());
        }
        if fields.index != u64::from(index) || fields.identity.tag != identity.tag {
            return Err("it is of another run or server".into());
        }
        if fields.identity.boot != identity.boot {
            return Err("the machine was started anew since".into());
        }
        Ok(source)
    }

    pub fn remove(&self, place: &Place) {
        match &self.what {
            // One that cannot be removed is no harm, only in the way.
            What::File(path) => drop(fs::remove_file(path)),
            What::Memory(memory) => {
                if let Backing::Shared(shared) = &place.backing {
                    shared.lock().retain(|m| !Arc::ptr_eq(m, memory));
                }
            }
        }
    }
}

/// One that can be read.
pub enum Opened {
    File(File),
    /// Memory that stands in for one.
    Memory(Arc<Memory>),
}

impl Opened {
    /// How much it says it holds.
    pub fn shape(&self) -> Result<Shape, String> {
        let mut bytes = [0; FIELDS_BYTES];
        self.read(0, &mut bytes).map_err(unreadable)?;
        Fields::decode(&bytes).shape.ok_or_else(|| "it names an impossible length".to_string())
    }

    /// How long it is.
    pub fn bytes(&self) -> Result<u64, String> {
        match self {
            Self::File(file) => file.metadata().map(|m| m.len()).map_err(unreadable),
            Self::Memory(memory) => Ok(memory.len() as u64),
        }
    }

    pub fn marked(&self) -> Result<Marked, String> {
        let mark = |at: usize| match self {
            Self::Memory(memory) => Ok(memory.mark(at).load(Ordering::Acquire)),
            Self::File(_) => {
                let mut bytes = [0; 8];
                self.read(at, &mut bytes).map(|()| u64::from_le_bytes(bytes)).map_err(unreadable)
            }
        };
        Ok(marked(mark(COMMITTED)?, mark(APPLIED)?, mark(SNAPSHOT)?))
    }

    /// Some of its bytes.
    pub fn read(&self, from: usize, into: &mut [u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(into, from as u64),
            Self::Memory(memory) => {
                memory.read(from, into);
                Ok(())
            }
        }
    }
}

pub(super) fn unreadable(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "it is cut short".into(),
        _ => format!("it cannot be read: {error}"),
    }
}

/// What a header says before its marks.
pub struct Fields {
    pub magic: u64,
    pub version: u64,
    /// Of the server.
    pub index: u64,
    /// Run and boot.
    pub identity: Identity,
    /// Nothing if the numbers are impossible.
    pub shape: Option<Shape>,
}

impl Fields {
    /// As it is kept.
    pub fn encode(index: u32, identity: &Identity, shape: &Shape) -> [u8; FIELDS_BYTES] {
        let mut bytes = [0; FIELDS_BYTES];
        let blocks = &shape.blocks;
        let numbers = [
            MAGIC,
            VERSION,
            index.into(),
            blocks.start.into(),
            blocks.end.into(),
            shape.parameters as u64,
            shape.optimizer as u64,
            shape.state as u64,
        ];
        for (to, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        bytes[64..96].copy_from_slice(&identity.tag);
        bytes[96..112].copy_from_slice(&identity.boot);
        bytes
    }

    fn decode(bytes: &[u8; FIELDS_BYTES]) -> Self {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[8 * at + i]));
        let small = |at: usize| usize::try_from(number(at)).ok().filter(|n| *n <= VALUES_MAX);
        let shape = || {
            let blocks = u32::try_from(number(3)).ok()?..u32::try_from(number(4)).ok()?;
            let (parameters, optimizer, state) = (small(5)?, small(6)?, small(7)?);
            Some(Shape { blocks, parameters, optimizer, state })
        };
        Self {
            magic: number(0),
            version: number(1),
            index: number(2),
            identity: Identity {
                tag: std::array::from_fn(|i| bytes[64 + i]),
                boot: std::array::from_fn(|i| bytes[96 + i]),
            },
            shape: shape(),
        }
    }
}

/// So that no length computed from a foreign header overflows.
const VALUES_MAX: usize = 1 << 40;
