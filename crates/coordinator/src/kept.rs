//! A method's own state on the disk, for a coordinator that takes the place of another.
//!
//! Two files in turn, each written under another name first: at every moment the state after
//! the last step that counts is whole in one of them. Like the record, they outlive the process and
//! not the machine. Never knows which step counts: the record says it.

use planaria_protocol::plain;
use planaria_store::hash::sha256;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const NAME: &str = "coordinator.state";

/// Keeps the state after `step` steps in `folder`.
pub fn keep(folder: &Path, step: u64, state: &[u8]) -> io::Result<()> {
    let place = place(folder, step);
    let fresh = place.with_extension("new");
    let mut content = Vec::with_capacity(state.len() + 40);
    content.extend_from_slice(&step.to_le_bytes());
    content.extend_from_slice(state);
    let sum = sha256(&content);
    content.extend_from_slice(&sum);
    fs::write(&fresh, content)?;
    fs::rename(fresh, place)
}

/// The state after `step` steps, if it is kept and whole.
pub fn read(folder: &Path, step: u64) -> Option<Vec<u8>> {
    let content = plain::read(&place(folder, step)).ok()?;
    let (body, sum) = content.split_at_checked(content.len().checked_sub(32)?)?;
    let (number, state) = body.split_at_checked(8)?;
    let is_whole = sha256(body).as_slice() == sum && number == step.to_le_bytes();
    is_whole.then(|| state.to_vec())
}

fn place(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("{NAME}-{}", step % 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_steps_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        for step in 1..=3 {
            keep(folder.path(), step, &[step as u8; 9]).unwrap();
        }
        let read = |step| read(folder.path(), step);
        assert_eq!((read(1), read(2)), (None, Some(vec![2; 9])));
        assert_eq!(read(3), Some(vec![3; 9]));
        let mut torn = fs::read(place(folder.path(), 3)).unwrap();
        torn[10] ^= 1;
        fs::write(place(folder.path(), 3), torn).unwrap();
        assert_eq!(read(3), None, "a changed byte is seen");
    }
}
