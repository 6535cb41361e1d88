//! `manifest.json`: what makes some parts a checkpoint.
//!
//! JSON whose last field, `sha256`, is the hash of all bytes before it, so that a changed byte
//! anywhere in the file is seen. Owns this file and what must hold between its fields. Never opens
//! a part.

use super::part::{self, Part, PartInfo};
use super::{FORMAT, MAGIC, Unreadable, damaged};
use crate::state::State;
use crate::{durable, plain};
use planaria_store::hash::{Hasher, hex, sha256};
use serde::{Deserialize, Serialize};

use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::path::Path;

/// Name of the file in a checkpoint's folder.
pub const FILE: &str = "manifest.json";
const SEAL: &str = ",\n  \"sha256\": \"";
const END: &str = "\"\n}\n";
const HASH_DIGITS: usize = 64;

/// What a checkpoint is of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format, [`FORMAT`].
    pub format: u32,
    /// Version of planaria that wrote it.
    pub planaria: String,
    pub build: String,
    /// How many times the run had been started or resumed, from 1.
    pub generation: u64,
    /// Steps done.
    pub step: u64,
    /// SHA-256 of the run's `recipe.yaml`.
    pub recipe_sha256: String,
    /// The run's `recipe.yaml`, to say what is different in another.
    pub recipe: String,
    /// What the data was; empty in manifests that do not say.
    #[serde(default)]
    pub data: Vec<Mark>,
    /// How far the run has come.
    pub state: State,
    pub parameters: u64,
    /// Values of the network's state, which part 0 holds.
    pub state_values: u64,
    /// Slots of the optimizer, each as long as the parameters.
    pub slots: u32,
    /// The parts, in the order of their parameters.
    pub parts: Vec<Part>,
}

/// A piece of the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Its name, of a file for instance.
    pub name: String,
    /// What tells its content from other content.
    pub content: String,
}

/// A hash of all pieces' content, in their order: other data has another. Names do not count, as
/// files may move.
pub fn data_sha256(marks: &[Mark]) -> String {
    let hash = marks.iter().fold(Hasher::new(), |hash, mark| {
        hash.chain_update((mark.content.len() as u64).to_le_bytes()).chain_update(&mark.content)
    });
    hex(&hash.finish())
}

impl Manifest {
    /// Reads the manifest in a checkpoint's folder, and compares it with its hash.
    pub fn read(folder: &Path) -> Result<Self, Unreadable> {
        let damaged = |why: String| damaged(folder)(why);
        let text = match plain::read(&folder.join(FILE)) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(Unreadable::Missing(folder.to_path_buf()));
            }
            Err(e) if e.kind() == ErrorKind::NotADirectory => return Err(not_a_folder(folder)),
            Err(e) => return Err(damaged(format!("`{FILE}` cannot be read: {e}"))),
        };
        let text = sealed(&text).map_err(|why| damaged(format!("`{FILE}` {why}")))?;
        let not_valid = |e: serde_json::Error| damaged(format!("`{FILE}` is not valid: {e}"));
        // The version first: another one has other fields.
        let Version { format: found, planaria } = serde_json::from_str(text).map_err(not_valid)?;
        if found != FORMAT {
            let path = folder.to_path_buf();
            return Err(Unreadable::OtherFormat { path, found, planaria });
        }
        serde_json::from_str(text).map_err(not_valid)
    }

    /// Writes it into a checkpoint's folder, whose parts are all there, and makes all names in the
    /// folder last.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        self.check().map_err(io::Error::other)?;
        durable::write(&folder.join(FILE), self.to_text().as_bytes())
    }

    fn to_text(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("a manifest has string keys only");
        let body = text.strip_suffix("\n}").expect("pretty JSON of a type with fields");
        format!("{body}{SEAL}{}{END}", hex(&sha256(body)))
    }

    /// The parts that hold a range of the parameters, and the state where the range begins at 0;
    /// says what is wrong where the parts do not make up the whole.
    pub fn parts_of(&self, range: &Range<u64>) -> Result<Vec<&Part>, String> {
        self.check()?;
        let parts = self.parts.iter().enumerate();
        let needed = parts.filter(|(number, part)| part.is_in(*number, range));
        Ok(needed.map(|(_, part)| part).collect())
    }

    /// Whether the parts make up the whole; says what is wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.state.step != self.step {
            return Err(format!(
                "its manifest is of step {}, its state of step {}",
                self.step, self.state.step
            ));
        }
        let mut at = 0;
        for part in &self.parts {
            let Part { info: PartInfo { file, bytes, .. }, start, end } = part;
            if !part::is_name(file) {
                return Err(format!("`{file}` is not the name of a part"));
            }
            if *start != at || end < start {
                return Err(format!("`{file}` begins at parameter {start} instead of {at}"));
            }
            // Slots are looped over before a part is opened.
            let values = (end - start).checked_mul(u64::from(self.slots) + 1);
            if values.and_then(|n| n.checked_mul(4)).is_none_or(|n| n > *bytes) {
                return Err(format!("`{file}` is too short for its parameters"));
            }
            at = *end;
        }
        if self.parts.is_empty() || at != self.parameters || self.slots > SLOTS_MAX {
            return Err(format!(
                "its parts hold {at} parameters and {} slots, of {} parameters",
                self.slots, self.parameters
            ));
        }
        Ok(())
    }
}

/// More slots than any optimizer has.
const SLOTS_MAX: u32 = 64;

#[derive(Deserialize)]
struct Version {
    format: u32,
    planaria: Option<String>,
}

/// The text of a manifest whose seal is right.
fn sealed(bytes: &[u8]) -> Result<&str, String> {
    let text = str::from_utf8(bytes).map_err(|_| "is not text: bytes were changed")?;
    let at = text.len().checked_sub(SEAL.len() + HASH_DIGITS + END.len());
    let (body, seal) = at.and_then(|at| text.split_at_checked(at)).ok_or("is cut short")?;
    let hash = seal.strip_prefix(SEAL).and_then(|rest| rest.strip_suffix(END));
    if hash != Some(&hex(&sha256(body))) {
        return Err("does not match its SHA-256: bytes were changed or cut off".into());
    }
    Ok(text)
}

/// Checkpoints were files before version 3.
fn not_a_folder(path: &Path) -> Unreadable {
    let mut start = [0; 12];
    let read = plain::open(path).and_then(|mut file| file.read_exact(&mut start));
    if read.is_ok() && &start[..8] == MAGIC {
        let found = u32::from_le_bytes(start[8..].try_into().expect("4 bytes"));
        return Unreadable::OtherFormat { path: path.to_path_buf(), found, planaria: None };
    }
    damaged(path)("it is a file, not a folder".into())
}
