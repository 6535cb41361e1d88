//! The file that a coordinator keeps its [`Record`] in, for the one that takes its place.
//!
//! Two slots of fixed size, written in turn, each with its number and a checksum: at every moment
//! one of them is whole. It outlives the process and not the machine; what it holds is believed
//! only under the boot it was written in, and over the data that it was written over. Room is taken when the file is made, so that a disk that
//! fills up later takes nothing away.

use crate::run::record::Record;
use planaria_protocol::plain;
use planaria_store::hash::Hasher;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Name of the file in the folder of kept state.
pub const FILE: &str = "coordinator.record";

const SLOT: usize = 1 << 16;
const HEADER: usize = 8 + 4 + 32;

/// What a record belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The boot of the machine.
    pub boot: String,
    /// A hash of the data's content (`checkpoint::data_sha256`).
    pub data: String,
}

/// The file, open for writing.
#[derive(Debug)]
pub struct RecordFile {
    file: File,
    stamp: Stamp,
    number: u64,
    slot: Vec<u8>,
}

impl RecordFile {
    /// Creates a record file in `folder` with this stamp. The first record that is written replaces the
    /// file of before.
    pub fn create(folder: &Path, stamp: &Stamp) -> io::Result<Self> {
        let fresh = folder.join(format!("{FILE}.new"));
        match fs::remove_file(&fresh) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let file =
            OpenOptions::new().write(true).read(true).create_new(true).mode(0o600).open(&fresh)?;
        if let Err(e) = file.write_all_at(&vec![0; 2 * SLOT], 0) {
            // On a full disk a piece of it would only be in the way.
            let _ = fs::remove_file(&fresh);
            return Err(e);
        }
        Ok(Self { file, stamp: stamp.clone(), number: 0, slot: Vec::with_capacity(SLOT) })
    }

    /// Goes on with the file that is there, where there is no room for a new one.
    pub fn reuse(folder: &Path, stamp: &Stamp) -> io::Result<Self> {
        let path = folder.join(FILE);
        let bytes = plain::read(&path)?;
        if bytes.len() != 2 * SLOT {
            return Err(io::Error::other("there is no whole file to go on with"));
        }
        let number =
            bytes.chunks(SLOT).filter_map(|s| slot(s, &stamp.boot)).map(|(number, ..)| number);
        // The newest that is whole must not be written over, and 1 is that of a new file.
        let number = number.max().unwrap_or(0).max(1);
        let file = OpenOptions::new().write(true).read(true).open(&path)?;
        Ok(Self { file, stamp: stamp.clone(), number, slot: Vec::with_capacity(SLOT) })
    }

    /// Writes a record; the one before it stays until this one is whole. Without its events, where
    /// there is no room for them.
    pub fn write(&mut self, folder: &Path, record: &Record) -> io::Result<()> {
        self.number += 1;
        self.put(record)?;
        if self.slot.len() > SLOT {
            self.put(&Record { events: Vec::new(), ..record.clone() })?;
        }
        if self.slot.len() > SLOT {
            return Err(io::Error::other(format!("a record has {} bytes", self.slot.len())));
        }
        let bytes = (self.slot.len() - HEADER) as u32;
        self.slot[..8].copy_from_slice(&self.number.to_le_bytes());
        self.slot[8..12].copy_from_slice(&bytes.to_le_bytes());
        let sum = checksum(&self.slot);
        self.slot[12..HEADER].copy_from_slice(&sum);
        let at = self.number % 2 * SLOT as u64;
        self.file.write_all_at(&self.slot, at)?;
        if self.number == 1 {
            fs::rename(folder.join(format!("{FILE}.new")), folder.join(FILE))?;
        }
        Ok(())
    }

    fn put(&mut self, record: &Record) -> io::Result<()> {
        self.slot.clear();
        self.slot.resize(HEADER, 0);
        let content = postcard::to_extend(&(&self.stamp, record), std::mem::take(&mut self.slot));
        self.slot = content.map_err(io::Error::other)?;
        Ok(())
    }
}

/// Takes away the record that is there: what has happened since is in none, and no coordinator must go on
/// from it as if nothing had.
pub fn discard(folder: &Path) -> io::Result<()> {
    // No record yet, and of no use without one.
    let _ = fs::remove_file(folder.join(format!("{FILE}.new")));
    let path = folder.join(FILE);
    match fs::remove_file(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        // Where a name cannot be taken away, what it stands for may.
        Err(_) => OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(0)),
        Ok(()) => Ok(()),
    }
}

/// The newest record that is whole and of this boot, and the data it is of.
pub fn read(folder: &Path, boot: &str) -> Option<(Record, String)> {
    let bytes = plain::read(&folder.join(FILE)).ok()?;
    let found = bytes.chunks(SLOT).filter_map(|s| slot(s, boot));
    found.max_by_key(|(number, ..)| *number).map(|(_, record, data)| (record, data))
}

fn slot(slot: &[u8], boot: &str) -> Option<(u64, Record, String)> {
    let number = u64::from_le_bytes(*slot.first_chunk()?);
    let bytes = u32::from_le_bytes(*slot.get(8..)?.first_chunk()?) as usize;
    let whole = slot.get(..HEADER.checked_add(bytes)?)?;
    if bytes == 0 || checksum(whole) != whole[12..HEADER] {
        return None;
    }
    let (stamp, record): (Stamp, Record) = postcard::from_bytes(&whole[HEADER..]).ok()?;
    (stamp.boot == boot).then_some((number, record, stamp.data))
}

/// Of everything but the checksum itself.
fn checksum(slot: &[u8]) -> [u8; 32] {
    Hasher::new().chain_update(&slot[..12]).chain_update(&slot[HEADER..]).finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use planaria_protocol::event::What;
    use planaria_protocol::state::State;

    fn read(folder: &Path, boot: &str) -> Option<Record> {
        let found = super::read(folder, boot);
        found.map(|(record, data)| {
            assert_eq!(data, "data");
            record
        })
    }

    fn record(step: u64) -> Record {
        Record::new(State { step, ..State::default() })
    }

    #[test]
    fn the_newest_whole_record_of_this_boot_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let stamp = Stamp { boot: "boot".into(), data: "data".into() };
        assert_eq!(read(folder, "boot"), None);
        let mut file = RecordFile::create(folder, &stamp).unwrap();
        assert_eq!(read(folder, "boot"), None, "there is nothing in it yet");
        for step in 1..=5 {
            let what = What::Stopping { reason: format!("{step}") };
            let record = record(step).with_events(&[&what]);
            file.write(folder, &record).unwrap();
            assert_eq!(read(folder, "boot"), Some(record.clone()));
            assert_eq!(record.clone().take_untold(&[]), std::slice::from_ref(&what));
            assert_eq!(record.clone().take_untold(&[what]), []);
        }
        assert_eq!(read(folder, "another"), None);

        // A new coordinator's file does not take the old record away before it has one itself.
        let mut next = RecordFile::create(folder, &stamp).unwrap();
        assert_eq!(read(folder, "boot").map(|r| r.state.step), Some(5));
        next.write(folder, &record(6)).unwrap();
        assert_eq!(read(folder, "boot").map(|r| r.state.step), Some(6));
        next.write(folder, &record(7)).unwrap();

        // A torn write costs one step.
        let path = folder.join(FILE);
        let whole = fs::read(&path).unwrap();
        for at in [0, 8, 20, HEADER + 3] {
            let mut torn = whole.clone();
            torn[at] ^= 0x40;
            fs::write(&path, torn).unwrap();
            assert_eq!(read(folder, "boot").map(|r| r.state.step), Some(6), "byte {at}");
        }
        // Where there is no room for a new file, the next coordinator goes on with this one.
        fs::write(&path, &whole).unwrap();
        let mut reused = RecordFile::reuse(folder, &stamp).unwrap();
        assert_eq!(read(folder, "boot").map(|r| r.state.step), Some(7));
        for step in [8, 9] {
            reused.write(folder, &record(step)).unwrap();
            assert_eq!(read(folder, "boot").map(|r| r.state.step), Some(step));
        }
        // Events without end do not take its room.
        let endless = Record { events: vec![b'x'; SLOT], ..record(10) };
        reused.write(folder, &endless).unwrap();
        assert_eq!(read(folder, "boot"), Some(record(10)));

        fs::write(&path, &whole[..10]).unwrap();
        assert_eq!(read(folder, "boot"), None);
        RecordFile::reuse(folder, &stamp).unwrap_err();
        discard(folder).unwrap();
        discard(folder).unwrap();
        assert!(!path.exists());
    }
}
