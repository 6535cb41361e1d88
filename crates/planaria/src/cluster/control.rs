//! `control.json`: how other commands of the same user find a live run. Only its owner can read it,
//! and it is gone when the run is over.

use crate::cluster::console::{Console, Watching};
use crate::failure::{Context, Failure, Result};
use crate::run_dir::RunDir;
use planaria_protocol::launch::{Launch, Trust};
use planaria_protocol::{Passport, Secret};
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Name of the file in a run's folder.
pub const FILE: &str = "control.json";

#[derive(Serialize, Deserialize)]
struct Content {
    address: String,
    secret: String,
    generation: u64,
    build: String,
    /// What consoles show where links are under TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trust: Option<Trust>,
}

/// The file, while the run lives.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// Writes it for a run; whoever reads it shows `passport`.
    pub fn write(
        run: &RunDir,
        address: &str,
        passport: &Passport,
        launch: &Launch,
    ) -> Result<Self> {
        let content = Content {
            address: address.to_owned(),
            secret: passport.secret().to_hex(),
            generation: launch.generation,
            build: launch.build.clone(),
            trust: passport.trust().cloned(),
        };
        let text = serde_json::to_vec(&content).expect("plain strings and numbers");
        let path = run.file(FILE);
        let write = || {
            // A file that a killed run left may be anyone's to read; the new one is made anew.
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(&text)
        };
        write().context(|| format!("cannot write `{}`", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // What cannot be removed leads nowhere: the coordinator is gone.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes what a session that was killed may have left: it leads nowhere.
pub fn forget(folder: &Path) {
    let _ = std::fs::remove_file(folder.join(FILE));
}

/// Connects to a live run in `folder`; nothing if it has no coordinator.
pub fn connect(folder: &Path) -> Result<Option<Console>> {
    let path = folder.join(FILE);
    let text = match std::fs::read(&path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.context(|| format!("cannot read `{}`", path.display()))?,
    };
    let content: Content = serde_json::from_slice(&text)
        .map_err(|e| Failure::failed(format!("`{}` cannot be read: {e}", path.display())))?;
    let secret = Secret::from_hex(&content.secret).map_err(Failure::failed)?;
    let passport = Passport::new(secret, content.trust.as_ref(), None).map_err(Failure::failed)?;
    // Of whichever generation: the coordinator may have been replaced since the file was written.
    Console::join(&content.address, &passport, &content.build, Watching::default()).map(Some)
}
