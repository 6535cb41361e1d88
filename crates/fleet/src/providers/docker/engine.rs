//! The engine's own operations: images, containers and what runs in them.
//!
//! Owns the names of the Engine API and how long each may take. Never decides anything about runs.

use super::frames::{Frames, Which};
use super::http::{self, Answer, Body, Deadline, Error, Request, Stream, encoded};
use super::tar::Archive;
use crate::provider::Ran;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, Read, Write};
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// The oldest version of the API that has all that is used here.
const API_MIN: Api = Api(1, 41);
/// How long the engine may think about a question.
const ANSWER: Duration = Duration::from_secs(30);
/// How long it may take to start or remove a container, on a busy machine.
const WORK: Duration = Duration::from_secs(60);
/// How long nothing may come of an image that is pulled or imported.
const PULL: Duration = Duration::from_secs(180);
/// Poll interval for a container's end, and how often at most.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
const LOOKS_MAX: u32 = 600;
/// Attempts at a request that fails inside the engine, as for a container that is being removed.
const FAILURES_MAX: u32 = 20;
/// Longest answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Longest line of a pull's progress, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Most that a command may write, in bytes.
const OUTPUT_BYTES_MAX: usize = 256 << 20;

/// A version of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Api(u32, u32);

impl Api {
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }

    /// The oldest version that both can speak: the one that was tested most.
    fn agree(version: &Version) -> Option<Self> {
        let (newest, oldest) = (Self::parse(&version.newest)?, Self::parse(&version.oldest)?);
        let chosen = oldest.max(API_MIN);
        (chosen <= newest).then_some(chosen)
    }
}

/// What an engine is.
#[derive(Debug, Clone, Deserialize)]
pub struct Version {
    /// Of the engine itself.
    #[serde(rename = "Version", default)]
    pub engine: String,
    /// Newest version of the API.
    #[serde(rename = "ApiVersion")]
    pub newest: String,
    /// Oldest version of the API.
    #[serde(rename = "MinAPIVersion")]
    pub oldest: String,
    #[serde(rename = "Arch")]
    pub arch: String,
    #[serde(rename = "Os")]
    pub os: String,
}

/// A container, as it is now.
#[derive(Debug, Clone)]
pub struct Container {
    /// Its own number.
    pub id: String,
    /// `created`, `running`, `exited`, `removing`…
    pub status: String,
    /// What it was tagged with.
    pub labels: BTreeMap<String, String>,
}

/// A line of a list of containers.
#[derive(Debug, Clone, Deserialize)]
pub struct Listed {
    #[serde(rename = "Names", default)]
    pub names: Vec<String>,
    /// As [`Container::status`].
    #[serde(rename = "State", default)]
    pub state: String,
    /// As [`Container::labels`].
    #[serde(rename = "Labels", default)]
    pub labels: BTreeMap<String, String>,
}

/// An engine, by its socket.
#[derive(Debug, Clone)]
pub struct Engine {
    socket: PathBuf,
    api: OnceLock<Api>,
}

impl Engine {
    /// Does not connect yet.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_path_buf(), api: OnceLock::new() }
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn version(&self) -> Result<Version, Error> {
        let target = "/version".to_owned();
        let request = Request { method: "GET", target, body: Body::Nothing, patience: ANSWER };
        let answer = http::ask(&self.socket, &request)?.granted()?;
        parse(&answer.read(ANSWER_BYTES_MAX)?)
    }

    /// The version of its API to use.
    pub fn api(&self) -> Result<Api, Error> {
        if let Some(api) = self.api.get() {
            return Ok(*api);
        }
        let version = self.version()?;
        let api = Api::agree(&version).ok_or_else(|| {
            let Api(major, minor) = API_MIN;
            let (oldest, newest) = (version.oldest, version.newest);
            let what = format!("it speaks {oldest} to {newest}, and {major}.{minor} is needed");
            Error::Garbled(what)
        })?;
        Ok(*self.api.get_or_init(|| api))
    }

    /// Whether there is such an image, and for which processor it is.
    pub fn image_arch(&self, image: &str) -> Result<Option<String>, Error> {
        let path = format!("/images/{}/json", encoded(image));
        let found: Option<Value> = self.look(&path)?;
        Ok(found.map(|image| image["Architecture"].as_str().unwrap_or_default().to_owned()))
    }

    /// Gets an image from where it says.
    pub fn pull(&self, image: &str) -> Result<(), Error> {
        let (name, tag) = reference(image);
        let path = format!("/images/create?fromImage={}&tag={}", encoded(name), encoded(tag));
        let answer = self.ask("POST", &path, Body::Nothing, PULL)?.granted()?;
        finish(answer)
    }

    /// Makes an image of files.
    pub fn import(
        &self,
        name: &str,
        tag: &str,
        files: &Archive,
        changes: &[String],
    ) -> Result<(), Error> {
        let changes = changes.iter().map(|change| format!("&changes={}", encoded(change)));
        let changes: String = changes.collect();
        let path = format!("/images/create?fromSrc=-&repo={name}&tag={tag}{changes}");
        let answer = self.ask("POST", &path, Body::Tar(files), PULL)?.granted()?;
        finish(answer)
    }

    /// Images with a label, by their numbers, the newest first.
    pub fn images(&self, label: &str) -> Result<Vec<String>, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Image {
            id: String,
            created: i64,
        }
        let filters = json!({ "label": [label] }).to_string();
        let path = format!("/images/json?filters={}", encoded(&filters));
        let answer = self.ask("GET", &path, Body::Nothing, ANSWER)?.granted()?;
        let mut images: Vec<Image> = parse(&answer.read(ANSWER_BYTES_MAX)?)?;
        images.sort_by_key(|image| -image.created);
        Ok(images.into_iter().map(|image| image.id).collect())
    }

    /// Removes an image, unless a container uses it.
    pub fn remove_image(&self, image: &str) -> Result<(), Error> {
        let path = format!("/images/{}", encoded(image));
        self.ask("DELETE", &path, Body::Nothing, WORK)?.granted().map(drop)
    }

    /// Makes a container and says its number.
    pub fn create(&self, name: &str, what: Value) -> Result<String, Error> {
        let path = format!("/containers/create?name={}", encoded(name));
        let answer = self.ask("POST", &path, Body::Json(what), WORK)?.granted()?;
        let created: Value = parse(&answer.read(ANSWER_BYTES_MAX)?)?;
        id(&created)
    }

    /// The bridge of a network, by the name of its device; nothing where it has none.
    pub fn bridge(&self, network: &str) -> Result<Option<String>, Error> {
        const NAME: &str = "com.docker.network.bridge.name";
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Network {
            id: String,
            driver: String,
            options: Option<BTreeMap<String, String>>,
        }
        let found: Option<Network> = self.look(&format!("/networks/{}", encoded(network)))?;
        let name = |network: Network| {
            let given = network.options.and_then(|mut options| options.remove(NAME));
            given.or_else(|| network.id.get(..12).map(|id| format!("br-{id}")))
        };
        Ok(found.filter(|network| network.driver == "bridge").and_then(name))
    }

    /// A container by its name or number; nothing where there is none.
    pub fn container(&self, name: &str) -> Result<Option<Container>, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Inspected {
            id: String,
            state: State,
            config: Config,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct State {
            status: String,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Config {
            labels: Option<BTreeMap<String, String>>,
        }
        let path = format!("/containers/{}/json", encoded(name));
        let found: Option<Inspected> = patiently(LOOK_AGAIN, || self.look(&path))?;
        Ok(found.map(|found| Container {
            id: found.id,
            status: found.state.status,
            labels: found.config.labels.unwrap_or_default(),
        }))
    }

    /// All containers with a label, whether they run or not.
    pub fn containers(&self, label: &str) -> Result<Vec<Listed>, Error> {
        let filters = json!({ "label": [label] }).to_string();
        let path = format!("/containers/json?all=1&filters={}", encoded(&filters));
        let answer = self.ask("GET", &path, Body::Nothing, ANSWER)?.granted()?;
        parse(&answer.read(ANSWER_BYTES_MAX)?)
    }

    /// Whether a file is in a container.
    pub fn has_file(&self, id: &str, path: &str) -> Result<bool, Error> {
        let target = format!("/containers/{id}/archive?path={}", encoded(path));
        let answer = self.ask("HEAD", &target, Body::Nothing, ANSWER)?;
        match answer.status {
            404 => Ok(false),
            _ => answer.granted().map(|_| true),
        }
    }

    /// Puts files into a container, from its root.
    pub fn put(&self, id: &str, files: &Archive) -> Result<(), Error> {
        let path = format!("/containers/{id}/archive?path=%2F");
        self.ask("PUT", &path, Body::Tar(files), WORK)?.granted().map(drop)
    }

    /// The streams of a container's first process; asked for before it is started.
    pub fn attach(&self, id: &str) -> Result<Stream, Error> {
        let path = format!("/containers/{id}/attach?stream=1&stdin=1&stdout=1&stderr=1");
        self.hijack(&path, Body::Nothing)
    }

    /// Starts a container.
    pub fn start(&self, id: &str) -> Result<(), Error> {
        let path = format!("/containers/{id}/start");
        let answer = self.ask("POST", &path, Body::Nothing, WORK)?;
        match answer.status {
            304 => Ok(()),
            _ => answer.granted().map(drop),
        }
    }

    /// Runs a container to its end; the engine removes it.
    pub fn run_to_end(&self, id: &str, input: &[u8], within: Duration) -> Result<Ran, Error> {
        let stream = self.attach(id)?;
        // Asked for before it starts: afterwards it may be gone.
        let path = format!("/containers/{id}/wait?condition=removed");
        let waiting = self.ask("POST", &path, Body::Nothing, within.max(WORK))?.granted()?;
        self.start(id)?;
        let (stdout, stderr) = converse(stream, input, within)?;
        let ended: Value = parse(&waiting.read(ANSWER_BYTES_MAX)?)?;
        let code = ended["StatusCode"].as_i64().unwrap_or(-1) as i32;
        Ok(Ran { code, stdout, stderr })
    }

    /// Runs a command in a container that runs.
    pub fn exec(
        &self,
        container: &str,
        command: &[&str],
        input: &[u8],
        within: Duration,
    ) -> Result<Ran, Error> {
        let what = json!({
            "AttachStdin": true, "AttachStdout": true, "AttachStderr": true, "Cmd": command,
        });
        let path = format!("/containers/{container}/exec");
        let answer = self.ask("POST", &path, Body::Json(what), ANSWER)?.granted()?;
        let created: Value = parse(&answer.read(ANSWER_BYTES_MAX)?)?;
        let id = id(&created)?;
        let how = json!({ "Detach": false, "Tty": false });
        let stream = self.hijack(&format!("/exec/{id}/start"), Body::Json(how))?;
        let (stdout, stderr) = converse(stream, input, within)?;
        Ok(Ran { code: self.exec_code(&id)?, stdout, stderr })
    }

    /// The exit code of a command whose streams have ended; it may need a moment to be known.
    fn exec_code(&self, id: &str) -> Result<i32, Error> {
        for _ in 0..LOOKS_MAX {
            let found: Option<Value> = self.look(&format!("/exec/{id}/json"))?;
            let Some(found) = found else { break };
            if let (Some(false), Some(code)) =
                (found["Running"].as_bool(), found["ExitCode"].as_i64())
            {
                return Ok(code as i32);
            }
            std::thread::park_timeout(LOOK_AGAIN);
        }
        Err(Error::Garbled("it does not say how the command has ended".into()))
    }

    /// Ends and removes a container, and waits until it is gone. One that is gone is fine.
    pub fn remove(&self, id: &str) -> Result<(), Error> {
        let path = format!("/containers/{}?force=1&v=1", encoded(id));
        let is_gone = patiently(LOOK_AGAIN, || {
            let answer = self.ask("DELETE", &path, Body::Nothing, WORK)?;
            match answer.status {
                404 => Ok(true),
                // It is being removed already, mostly by the engine itself.
                409 => Ok(false),
                _ => answer.granted().map(|_| false),
            }
        });
        if is_gone? { Ok(()) } else { self.wait_gone(id) }
    }

    fn wait_gone(&self, id: &str) -> Result<(), Error> {
        for _ in 0..LOOKS_MAX {
            if self.container(id)?.is_none() {
                return Ok(());
            }
            std::thread::park_timeout(LOOK_AGAIN);
        }
        let message = format!("container {id} is being removed, but does not go");
        Err(Error::Refused { status: 409, message })
    }

    /// Asks for a thing that may not be there.
    fn look<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Error> {
        let answer = self.ask("GET", path, Body::Nothing, ANSWER)?;
        match answer.status {
            404 => Ok(None),
            _ => parse(&answer.granted()?.read(ANSWER_BYTES_MAX)?).map(Some),
        }
    }

    fn ask(
        &self,
        method: &'static str,
        path: &str,
        body: Body<'_>,
        patience: Duration,
    ) -> Result<Answer, Error> {
        let target = self.target(path)?;
        http::ask(&self.socket, &Request { method, target, body, patience })
    }

    fn hijack(&self, path: &str, body: Body<'_>) -> Result<Stream, Error> {
        let target = self.target(path)?;
        http::hijack(&self.socket, &Request { method: "POST", target, body, patience: ANSWER })
    }

    fn target(&self, path: &str) -> Result<String, Error> {
        let Api(major, minor) = self.api()?;
        Ok(format!("/v{major}.{minor}{path}"))
    }
}

/// Writes the input, reads both outputs to their ends, all within a time.
fn converse(stream: Stream, input: &[u8], within: Duration) -> Result<(Vec<u8>, Vec<u8>), Error> {
    let Stream { reading, mut writing } = stream;
    let deadline = Deadline::set(&writing, within)?;
    writing.set_read_timeout(None)?;
    writing.set_write_timeout(None)?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let read = std::thread::scope(|scope| {
        scope.spawn(move || {
            // A command may end without reading all of it.
            let _ = writing.write_all(input);
            let _ = writing.shutdown(Shutdown::Write);
        });
        let hang_up = reading.get_ref().try_clone();
        let read = read_both(reading, &mut stdout, &mut stderr);
        // So that the other thread ends as well.
        if let Ok(stream) = hang_up {
            let _ = stream.shutdown(Shutdown::Both);
        }
        read
    });
    if deadline.is_over() {
        let what = format!("it did not end within {} s", within.as_secs());
        return Err(Error::Lost(std::io::Error::other(what)));
    }
    read?;
    Ok((stdout, stderr))
}

fn read_both(from: impl Read, out: &mut Vec<u8>, aside: &mut Vec<u8>) -> Result<(), Error> {
    let mut frames = Frames::new(from);
    let mut piece = vec![0; 64 << 10];
    while let Some((which, read)) = frames.next(&mut piece)? {
        match which {
            Which::Out => out.extend_from_slice(&piece[..read]),
            Which::Aside => aside.extend_from_slice(&piece[..read]),
        }
        if out.len() + aside.len() > OUTPUT_BYTES_MAX {
            return Err(Error::Garbled(format!("more than {OUTPUT_BYTES_MAX} bytes of output")));
        }
    }
    Ok(())
}

/// Reads what the engine tells of a pull or import to its end: whether it failed is said in there.
fn finish(answer: Answer) -> Result<(), Error> {
    let mut lines = answer.lines();
    loop {
        let mut line = Vec::new();
        (&mut lines).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        let told: Value = serde_json::from_slice(&line).unwrap_or_default();
        if let Some(message) = told["error"].as_str() {
            return Err(Error::Refused { status: 500, message: message.to_owned() });
        }
    }
}

/// An image's name, and its tag or digest. Without one the engine would fetch every version.
fn reference(image: &str) -> (&str, &str) {
    if let Some((name, digest)) = image.split_once('@') {
        return (name, digest);
    }
    match image.rsplit_once(':') {
        // A colon before the last slash is a port's.
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (image, "latest"),
    }
}

fn id(created: &Value) -> Result<String, Error> {
    let id = created["Id"].as_str().unwrap_or_default();
    match !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(id.to_owned()),
        false => Err(Error::Garbled("no number of what was made".into())),
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|why| Error::Garbled(why.to_string()))
}

/// Asks again where the engine fails: of a container that it is removing it knows half, for a moment.
fn patiently<T>(pause: Duration, mut ask: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 1..FAILURES_MAX {
        match ask() {
            Err(Error::Refused { status: 500.., .. }) => std::thread::park_timeout(pause),
            answer => return answer,
        }
    }
    ask()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_fails_is_asked_again_and_one_that_refuses_is_not() {
        let count = |status: u16, fails: u32| {
            let mut asked = 0;
            let answer = patiently(Duration::ZERO, || {
                asked += 1;
                let message = "RWLayer is unexpectedly nil".to_owned();
                if asked > fails { Ok(()) } else { Err(Error::Refused { status, message }) }
            });
            (asked, answer.is_ok())
        };
        assert_eq!(count(500, 0), (1, true));
        assert_eq!(count(500, 3), (4, true));
        assert_eq!(count(500, FAILURES_MAX), (FAILURES_MAX, false));
        assert_eq!(count(409, 3), (1, false));
    }

    #[test]
    fn the_oldest_common_version_is_spoken() {
        let check = |oldest: &str, newest: &str, expect| {
            let [oldest, newest] = [oldest, newest].map(str::to_owned);
            let [arch, os] = ["amd64", "linux"].map(str::to_owned);
            let version = Version { engine: String::new(), newest, oldest, arch, os };
            assert_eq!(Api::agree(&version), expect, "{version:?}");
        };
        check("1.12", "1.41", Some(Api(1, 41)));
        check("1.24", "1.51", Some(Api(1, 41)));
        check("1.44", "1.52", Some(Api(1, 44)));
        check("1.12", "1.40", None);
        check("", "1.41", None);
    }

    #[test]
    fn images_have_a_tag() {
        for (image, expect) in [
            ("debian", ("debian", "latest")),
            ("debian:12", ("debian", "12")),
            ("localhost:5000/x", ("localhost:5000/x", "latest")),
            ("localhost:5000/x:1", ("localhost:5000/x", "1")),
            ("x@sha256:ab", ("x", "sha256:ab")),
        ] {
            assert_eq!(reference(image), expect, "{image}");
        }
    }
}
