//! A server's way to the run's checkpoints where its machine does not have the run's folder.
//!
//! Its part is sent to the coordinator's machine over a link of its own, straight from the copy that
//! the server keeps for it, so that a full disk here costs no checkpoint; what it begins from is
//! fetched to a folder of this machine, read and removed. Owns these folders. Never touches the run's
//! folder, and never holds a part in memory besides that copy.

use super::snapshot::Snapshot;
use planaria_numerics::aggregate::BLOCK;
use planaria_protocol::checkpoint::{Manifest, PartInfo, manifest};
use planaria_protocol::launch::{Launch, Parts};
use planaria_protocol::message::{Agent, FromServer, Join, LinkPurpose, Source, ToServer, Trouble};
use planaria_protocol::transfer::files::Ask;
use planaria_protocol::transfer::{Fault, Line};
use planaria_protocol::{Credentials, Error, link};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest manifest, in bytes; one names a part for each server.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// Carries a server's files to the coordinator's machine, and from there.
pub struct Carrier {
    index: u32,
    /// Of the whole network.
    parameters: u64,
    address: String,
    credentials: Credentials,
    join: Join,
    /// Where folders for part_files are made.
    place: PathBuf,
    /// Folders so far.
    folders: AtomicU64,
}

impl Carrier {
    /// For a server whose launch says to use one.
    pub fn of(launch: &Launch, index: u32, credentials: &Credentials) -> Option<Self> {
        if launch.station.parts == Parts::Folder {
            return None;
        }
        let place = launch.state.as_ref().map_or_else(std::env::temp_dir, PathBuf::from);
        if launch.state.is_some() {
            // Where it cannot be made, making a folder in it says why.
            let _ = fs::create_dir_all(&place);
            remove_left(&place, index);
        }
        let join = Join {
            machine: launch.station.machine.clone(),
            purpose: LinkPurpose::Parts,
            ..Join::new(Agent::Server(index), launch.build.clone(), launch.station.pid())
        };
        Some(Self {
            index,
            parameters: launch.facts.parameters,
            address: launch.coordinator.clone().unwrap_or_default(),
            credentials: credentials.clone(),
            join,
            place,
            folders: AtomicU64::new(0),
        })
    }

    /// Sends a copy as this server's part of its checkpoint; the answer is for the coordinator.
    pub fn save(&self, generation: u64, snapshot: &Snapshot) -> FromServer {
        let step = snapshot.step;
        match self.put(generation, snapshot) {
            Ok(PartInfo { file, sha256, bytes }) => FromServer::Saved { step, file, sha256, bytes },
            Err(fault) => {
                let why = format!("sending it to the coordinator's machine: {fault}");
                FromServer::NotSaved { step, why }
            }
        }
    }

    /// An order as it can be followed on this machine: where it names a checkpoint, what is needed
    /// of that is fetched, and lies in the folder until that is dropped.
    pub fn bring(
        &self,
        generation: u64,
        order: ToServer,
    ) -> Result<(ToServer, Option<Folder>), Fault> {
        let ToServer::Begin { blocks, source: Source::Checkpoint(checkpoint), step } = order else {
            return Ok((order, None));
        };
        let parameter = |block: u32| (u64::from(block) * BLOCK as u64).min(self.parameters);
        let range = parameter(blocks.start)..parameter(blocks.end);
        let folder = self.folder(&checkpoint)?;
        // Who holds nothing needs nothing.
        if !blocks.is_empty() || self.index == 0 {
            self.fetch(generation, name_of(&checkpoint)?, &range, &folder)?;
        }
        let source = Source::Checkpoint(folder.path.display().to_string());
        Ok((ToServer::Begin { blocks, source, step }, Some(folder)))
    }

    fn put(&self, generation: u64, snapshot: &Snapshot) -> Result<PartInfo, Fault> {
        let checkpoint = name_of(&snapshot.folder)?.to_owned();
        snapshot.stream(|info, mut from| {
            let PartInfo { file, sha256, bytes } = info.clone();
            let mut line = self.line(generation)?;
            line.ask(Ask::Put { checkpoint, file, bytes, sha256 })?;
            line.send_file(&mut from, bytes)?;
            line.hear_stored()?;
            Ok(info)
        })?
    }

    /// Fetches a checkpoint's manifest, and the parts of it that hold a range.
    fn fetch(
        &self,
        generation: u64,
        checkpoint: &str,
        range: &Range<u64>,
        into: &Folder,
    ) -> Result<(), Fault> {
        let mut line = self.line(generation)?;
        get(&mut line, checkpoint, manifest::FILE, MANIFEST_BYTES_MAX, into)?;
        let unreadable = |why: String| Fault::refused(format!("checkpoint `{checkpoint}`: {why}"));
        let manifest = Manifest::read(&into.path).map_err(|e| unreadable(e.to_string()))?;
        // Names in a manifest are checked with it.
        for part in manifest.parts_of(range).map_err(unreadable)? {
            get(&mut line, checkpoint, &part.info.file, part.info.bytes, into)?;
        }
        Ok(())
    }

    /// A link of its own; a coordinator of another generation has nothing to do with it.
    fn line(&self, generation: u64) -> Result<Line<Ask>, Error> {
        let (sender, receiver) =
            link::connect(&self.address, &self.credentials, Agent::Coordinator, Some(generation))?;
        sender.send(&self.join)?;
        Line::new(sender, receiver)
    }

    fn folder(&self, of: &str) -> io::Result<Folder> {
        let number = self.folders.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{}-{number}", prefix(self.index), std::process::id());
        let path = self.place.join(name);
        DirBuilder::new().mode(0o700).create(&path).map_err(|e| {
            io::Error::new(e.kind(), format!("cannot make folder `{}`: {e}", path.display()))
        })?;
        Ok(Folder { path, of: of.to_owned() })
    }
}

/// A folder of this machine for a while.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// What it holds a copy of, by its name on its own machine.
    of: String,
}

impl Folder {
    /// Trouble with what was fetched is trouble with what it is a copy of.
    pub fn explain(&self, trouble: Trouble) -> Trouble {
        let message = trouble.message.replace(&*self.path.to_string_lossy(), &self.of);
        Trouble { message, ..trouble }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next server here.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn get(
    line: &mut Line<Ask>,
    checkpoint: &str,
    file: &str,
    bytes_max: u64,
    into: &Folder,
) -> Result<(), Fault> {
    line.ask(Ask::Get { checkpoint: checkpoint.into(), file: file.into() })?;
    let (length, _) = line.hear_comes()?;
    let bytes = length.units.saturating_mul(length.unit_bytes);
    if bytes > bytes_max {
        let why = format!("`{checkpoint}/{file}` has {bytes} bytes, at most {bytes_max} can be");
        return Err(Fault::refused(why));
    }
    let mut to = File::create_new(into.path.join(file))?;
    line.take(bytes, |_, piece| Ok(to.write_all(piece)?))
}

/// The name of a checkpoint's folder, which is another machine's.
fn name_of(folder: &str) -> Result<&str, Fault> {
    let name = Path::new(folder).file_name().and_then(|name| name.to_str());
    name.ok_or_else(|| Fault::refused(format!("`{folder}` names no checkpoint")))
}

fn prefix(index: u32) -> String {
    format!("temporary-{index}-")
}

/// Removes what servers of this number have left that were killed.
fn remove_left(place: &Path, index: u32) {
    let prefix = prefix(index);
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
            // In the way, and no more than that.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
