//! `control.json`: how other commands of the same user find a live run. Only its owner can read it,
//! and it is gone when the run is over.

use crate::live::console::{Console, Watching};
use planaria_protocol::launch::{Launch, Trust};
use planaria_protocol::plain;
use planaria_protocol::{Credentials, Secret};
use planaria_runs::failure::{Context, Failure, Result};
use planaria_runs::run_dir::RunDir;
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
    /// The consoles' own: no worker or server knows it.
    secret: String,
    generation: u64,
    build: String,
    /// What consoles show where links are under TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trust: Option<Trust>,
}

impl Content {
    fn new(address: &str, credentials: &Credentials, generation: u64, build: &str) -> Self {
        Self {
            address: address.to_owned(),
            secret: credentials.secret().to_hex(),
            generation,
            build: build.to_owned(),
            trust: credentials.trust(),
        }
    }

    /// Only its owner can read it, from the first byte on; who reads finds all of it, or the one
    /// before.
    fn write(&self, path: &Path) -> std::io::Result<()> {
        let text = serde_json::to_vec(self).expect("plain strings and numbers");
        let draft = path.with_extension("json.new");
        // What a killed run left may be readable by all users; it is made anew.
        match std::fs::remove_file(&draft) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&draft, path)
    }
}

/// The file, while the run lives.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    address: String,
    generation: u64,
    build: String,
}

impl Control {
    /// Writes it for a run; its readers show `credentials`.
    pub fn write(
        run: &RunDir,
        address: &str,
        credentials: &Credentials,
        launch: &Launch,
    ) -> Result<Self> {
        let control = Self {
            path: run.file(FILE),
            address: address.to_owned(),
            generation: launch.generation,
            build: launch.build.clone(),
        };
        control.renew(credentials)?;
        Ok(control)
    }

    /// Writes it again: readers from now on show these.
    pub fn renew(&self, credentials: &Credentials) -> Result<()> {
        let content = Content::new(&self.address, credentials, self.generation, &self.build);
        content.write(&self.path).context(|| format!("cannot write `{}`", self.path.display()))
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
    let text = match plain::read(&path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.context(|| format!("cannot read `{}`", path.display()))?,
    };
    let content: Content = serde_json::from_slice(&text)
        .map_err(|e| Failure::failed(format!("`{}` cannot be read: {e}", path.display())))?;
    let secret = Secret::from_hex(&content.secret).map_err(Failure::failed)?;
    let credentials =
        Credentials::new(secret, content.trust.as_ref(), None).map_err(Failure::failed)?;
    // Of whichever generation: the coordinator may have been replaced since the file was written.
    Console::join(&content.address, &credentials, &content.build, Watching::default()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::console::News;
    use crate::live::console::tests::fake_under;
    use planaria_protocol::event::What;
    use planaria_protocol::message::Agent;
    use planaria_protocol::tls::Authority;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    #[test]
    fn other_commands_find_a_run_plain_and_under_tls() {
        let secret = Secret::random().unwrap();
        let authority = Authority::new("run", 1.8e9).unwrap();
        let sealed = |agent| {
            let trust = authority.issue(agent, None, Duration::ZERO).unwrap();
            Credentials::new(secret.clone(), Some(&trust), None).unwrap()
        };
        let plain = || Credentials::plain(secret.clone());
        for (coordinator, credentials) in
            [(plain(), plain()), (sealed(Agent::Coordinator), sealed(Agent::Console))]
        {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(FILE);
            assert!(connect(folder.path()).unwrap().is_none());
            // What a killed run left may be readable by all users.
            std::fs::write(&path, "{}").unwrap();
            let events = vec![What::Scaled { workers: 3 }];
            let (address, _listening, _heard) =
                fake_under(coordinator.admitting_consoles(), events, |_| None);
            Content::new(&address, &credentials, 7, "b").write(&path).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            let console = connect(folder.path()).unwrap().unwrap();
            match console.next(Duration::from_secs(10)) {
                News::Event(event) => assert_eq!(event.what, What::Scaled { workers: 3 }),
                other => panic!("{other:?}"),
            }
        }
    }
}
