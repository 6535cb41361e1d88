//! What an engine's refusals mean to a user, and what to do about each.
//!
//! Owns the words. Never asks an engine.

use super::http::Error;
use super::image::Needs;
use crate::program::Program;
use crate::provider::{Fault, Remedy};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where the engine listens by default.
pub const SOCKET: &str = "/var/run/docker.sock";

/// The socket's path: as the settings say, else as `DOCKER_HOST` does, else the usual one.
pub fn socket(given: Option<&str>, docker_host: Option<&str>) -> Result<PathBuf, Fault> {
    let Some(word) = given.or(docker_host.filter(|host| !host.is_empty())) else {
        return Ok(SOCKET.into());
    };
    match word.strip_prefix("unix://").or((!word.contains("://")).then_some(word)) {
        Some(path) if path.starts_with('/') => Ok(path.into()),
        _ => Err(Fault::fix(
            "docker",
            format!("the engine's address `{word}` is no unix socket"),
            "give the engine's socket as `unix:///path`; another machine's can be forwarded to one \
             here",
        )),
    }
}

/// The fault of an operation that the engine has not done.
pub fn fault(machine: &str, doing: &str, error: Error) -> Fault {
    let text = format!("cannot {doing}: {error}");
    match error {
        Error::Connect { socket, why } => unreachable(machine, Path::new(&socket), &why),
        Error::Lost(_) => Fault::retry(machine, text),
        Error::Garbled(_) => {
            Fault::fix(machine, text, "the engine must be Docker 20.10 or newer, or speak like it")
        }
        Error::Refused { status, message } => refused(machine, text, status, &message),
    }
}

fn refused(machine: &str, text: String, status: u16, message: &str) -> Fault {
    let says = |words: &str| message.to_lowercase().contains(words);
    if says("no space left") {
        let hint = "free some of the engine's disk: `docker system df` shows what takes it";
        return Fault::fix(machine, text, hint);
    }
    if says("docker-init") {
        let hint = "install `docker-init` (Debian: `apt-get install tini`) beside the engine";
        return Fault::fix(machine, text, hint);
    }
    if says("network") && (status == 404 || says("not found")) {
        let hint = "`docker network ls` lists the networks there are";
        return Fault::fix(machine, text, hint);
    }
    if status == 400 {
        return Fault::fix(machine, text, "see the `pool` section of the recipe");
    }
    Fault::retry(machine, text)
}

/// No answer at the socket. An engine may come back, but a command that has just begun should fail.
fn unreachable(machine: &str, socket: &Path, why: &std::io::Error) -> Fault {
    let shown = socket.display();
    let start = "start it (`systemctl start docker`, or `dockerd`)";
    let (what, hint, remedy) = match why.kind() {
        ErrorKind::PermissionDenied => (
            format!("this user may not use the engine's socket `{shown}`"),
            "add the user to the group `docker` (`sudo usermod -aG docker $USER`) and log in again"
                .to_owned(),
            Remedy::Fix,
        ),
        ErrorKind::ConnectionRefused => {
            (format!("the engine at `{shown}` is not running"), start.to_owned(), Remedy::Retry)
        }
        ErrorKind::NotFound if is_installed() => (
            format!("no engine is running: there is no socket `{shown}`"),
            format!("{start}, or say where it is in `DOCKER_HOST`"),
            Remedy::Retry,
        ),
        ErrorKind::NotFound => (
            format!("Docker is not installed here: there is no socket `{shown}`"),
            "install it (Debian: `apt-get install docker.io`), or say in `DOCKER_HOST` where an \
             engine is"
                .to_owned(),
            Remedy::Retry,
        ),
        _ => (
            format!("cannot connect to the engine at `{shown}`: {why}"),
            start.into(),
            Remedy::Retry,
        ),
    };
    Fault { remedy, ..Fault::replace(machine, what, hint) }
}

fn is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    folders.any(|folder| folder.join("dockerd").is_file())
}

/// An image that is not there and could not be had.
pub fn no_image(image: &str, why: &Error) -> Fault {
    Fault::fix(
        "docker",
        format!("image `{image}` is not here and cannot be pulled: {why}"),
        format!(
            "check the name, build or load it (`docker load`, `docker build -t {image}`), or leave \
             `image` out: then one is made of the program itself"
        ),
    )
}

/// An engine or image for another processor.
pub fn other_processor(whose: &str, arch: &str, program: &Program) -> Option<Fault> {
    let known = match arch {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    };
    let differs = !known.is_empty() && known != program.arch;
    differs.then(|| {
        let (what, ours) = (format!("{whose} is for {arch}"), program.arch);
        let hint =
            format!("this program is built for {ours}: use one for {ours}, or build it there");
        Fault::fix("docker", format!("{what}, the program for {ours}"), hint)
    })
}

/// The host ended before it said hello.
pub fn silent(machine: &str, image: &str, program: &Program, said: &str) -> Fault {
    let cannot_run = [
        "no such file or directory",
        "exec format error",
        "shared librar",
        "version `",
        "permission denied",
        "symbol not found",
    ];
    let text = said.to_lowercase();
    if !cannot_run.iter().any(|words| text.contains(words)) {
        let said = if said.is_empty() { "it said nothing" } else { said };
        return Fault::retry(machine, format!("the host ended at once: {said}"));
    }
    let needs = Needs::of(&program.path).map_or_else(|why| why.to_string(), |needs| needs.words());
    Fault::fix(
        machine,
        format!("image `{image}` cannot run the program: {said}"),
        format!(
            "the program is built for {} and needs {needs}: use an image that has these (one of the \
             distribution it was built on, or newer), or leave `image` out",
            program.arch
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_found() {
        let check = |given, host, expect: &str| {
            assert_eq!(socket(given, host).unwrap(), Path::new(expect), "{given:?} {host:?}");
        };
        check(None, None, SOCKET);
        check(None, Some(""), SOCKET);
        check(None, Some("unix:///x/y.sock"), "/x/y.sock");
        check(Some("/a.sock"), Some("unix:///x.sock"), "/a.sock");
        check(Some("unix:///a.sock"), Some("tcp://1.2.3.4:2375"), "/a.sock");
        for bad in ["tcp://1.2.3.4:2375", "ssh://host", "unix://relative", "relative"] {
            let fault = socket(None, Some(bad)).unwrap_err();
            assert!(fault.remedy == Remedy::Fix && fault.what.contains(bad), "{fault:?}");
        }
    }

    #[test]
    fn each_refusal_has_its_remedy() {
        let check = |status, message: &str, remedy| {
            let error = Error::Refused { status, message: message.into() };
            let fault = fault("m1", "start the container", error);
            assert_eq!(fault.remedy, remedy, "{fault:?}");
            assert!(fault.what.contains(message), "{fault:?}");
        };
        check(404, "network lab not found", Remedy::Fix);
        check(400, "invalid CPU count", Remedy::Fix);
        check(500, "write /x: no space left on device", Remedy::Fix);
        check(409, "removal is already in progress", Remedy::Retry);
        check(500, "something else", Remedy::Retry);
    }

    #[test]
    fn an_engine_that_is_not_there_is_named() {
        for (kind, words) in [
            (ErrorKind::PermissionDenied, "may not use"),
            (ErrorKind::ConnectionRefused, "is not running"),
            (ErrorKind::NotFound, "no socket"),
        ] {
            let fault = unreachable("docker", Path::new("/x.sock"), &kind.into());
            assert!(fault.what.contains(words) && fault.what.contains("/x.sock"), "{fault:?}");
            assert!(fault.hint.is_some());
        }
    }
}
