//! The program that agents are processes of.
//!
//! Owns where it is looked for and that it is of this build. Never starts an agent.

use planaria_fleet::local::OWN;
use planaria_runs::failure::{Failure, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The program's name.
const NAME: &str = "planaria";

/// Which build this is.
static BUILD: OnceLock<&str> = OnceLock::new();

/// Says which build this is; to be called before anything else of this crate.
pub fn is_of_build(build: &'static str) {
    let _ = BUILD.set(build);
}

/// Which build this is; processes of one run must be of the same.
pub fn build() -> &'static str {
    BUILD.get().copied().unwrap_or("unknown")
}

/// Whether this program's arguments are those of the command, so that it can be any agent.
static HAS_AGENTS: AtomicBool = AtomicBool::new(false);

/// From here on this program counts as one that has agents.
pub fn has_agents() {
    HAS_AGENTS.store(true, Ordering::Relaxed);
}

/// The program: the one given, this one, one beside it, or one on `PATH`.
pub fn find(given: Option<&Path>) -> Result<PathBuf> {
    let asked = std::env::args_os().nth(1).is_some_and(|argument| argument == "agent");
    if asked && !HAS_AGENTS.load(Ordering::Relaxed) {
        // It would start itself again and again.
        return Err(Failure::user("this program was started as an agent, but has none"));
    }
    let own = std::env::current_exe().unwrap_or_default();
    let is_own = given.is_none_or(|path| is_same(path, &own));
    if is_own && HAS_AGENTS.load(Ordering::Relaxed) {
        // A file may become another while a run goes on, as when it is upgraded. What runs does not.
        return Ok(if Path::new(OWN).exists() { OWN.into() } else { own });
    }
    if let Some(path) = given {
        return check(path, "name the `planaria` that was built with this program");
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = beside(&own).chain(std::env::split_paths(&paths)).map(|folder| folder.join(NAME));
    // Another program may have the same name, and this may be it.
    match found.into_iter().find(|path| path.is_file() && !is_same(path, &own)) {
        Some(path) => check(&path, "give the right one to `Planaria::program`"),
        None => Err(Failure::user(format!(
            "workers and servers are processes of the `{NAME}` program, and there is none beside \
             `{}` or on PATH",
            own.display()
        ))
        .hint("build it with `cargo build --release` and give its path to `Planaria::program`")),
    }
}

fn is_same(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Folders that a build puts programs in beside `own`; tests and examples lie one deeper.
fn beside(own: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let folder = own.parent().map(Path::to_path_buf);
    let deeper = folder.as_ref().is_some_and(|f| f.ends_with("deps") || f.ends_with("examples"));
    let above = folder.as_ref().and_then(|f| f.parent()).filter(|_| deeper).map(Path::to_path_buf);
    folder.into_iter().chain(above)
}

/// Refuses a program that is not of this build: its processes could not talk to ours.
fn check(path: &Path, hint: &str) -> Result<PathBuf> {
    let shown = path.display();
    let output = Command::new(path).args(["agent", "build"]).stdin(Stdio::null()).output();
    let output = output.map_err(|e| {
        Failure::user(format!("the program `{shown}` does not start: {e}")).hint(hint)
    })?;
    let said = String::from_utf8_lossy(&output.stdout);
    match said.trim() {
        build if build == self::build() => Ok(path.to_path_buf()),
        build if output.status.success() && !build.is_empty() => Err(Failure::user(format!(
            "the program `{shown}` is of build {build}, but this one is of {}",
            self::build()
        ))
        .hint(hint)),
        _ => Err(Failure::user(format!("`{shown}` is not a `{NAME}` program that has agents"))
            .hint(hint)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_where_builds_put_them() {
        let folders = |own: &str| beside(Path::new(own)).collect::<Vec<_>>();
        assert_eq!(folders("/t/debug/app"), [Path::new("/t/debug")]);
        assert_eq!(
            folders("/t/debug/deps/app-1"),
            [Path::new("/t/debug/deps"), Path::new("/t/debug")]
        );
    }

    #[test]
    fn what_is_no_planaria_is_refused() {
        for path in ["/bin/true", "/nowhere/planaria"] {
            let refused = find(Some(Path::new(path))).unwrap_err();
            assert!(refused.message.contains(path), "{refused}");
            assert!(refused.hint.is_some());
        }
    }
}
