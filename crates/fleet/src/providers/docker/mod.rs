//! Machines that are containers on one engine.
//!
//! Owns how a machine becomes a container, and the end of it. Never looks into a container by other
//! means than the engine's, and gives it nothing of this machine but what its settings name: no
//! privileges.
//!
//! # Layout
//! - `settings`: what can be chosen
//! - [`engine`]: the engine's operations; [`http`] and [`frames`]: how they are asked for
//! - [`image`]: what is in a machine where no image is given; [`tar`]: how it gets there
//! - [`faults`]: what can be wrong, and what to do about it

mod bridge;
mod container;
mod engine;
mod faults;
mod frames;
mod http;
mod image;
mod settings;
mod tar;

pub use settings::{Mount, Settings};

use crate::channel::{Channel, StderrTail};
use crate::finding::Finding;
use crate::program::Program;
use crate::provider::{Call, Fault, Leak, Machine, Made, Notice, Provider, Ran, Remedy, Tag};
use crate::providers::{Kind, Place, Purpose};
use engine::{Container, Engine, Listed};
use frames::{Frames, Output};
use http::{Error, Stream};
use image::Needs;
use planaria_recipe::pool::providers::docker as recipe;
use std::io::{Cursor, ErrorKind, Read};
use std::net::Shutdown;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

/// How long a host may take to say hello.
const HELLO: Duration = Duration::from_secs(30);
/// How long a program may take to say which build it is.
const BUILD: Duration = Duration::from_secs(30);
/// Attempts to replace an unusable container.
const ATTEMPTS_MAX: usize = 5;
/// Images made of programs that are kept: that of this one, and a few of others.
const IMAGES_MAX: usize = 4;

/// Containers on one engine.
#[derive(Debug)]
pub struct Docker {
    settings: Settings,
    engine: Engine,
    /// Hash of the program whose image was made, or seen to be there.
    built: Mutex<Option<String>>,
    /// What comes of pulling the image that was given, while it is pulled.
    pulling: Mutex<Option<Receiver<Result<(), Error>>>>,
}

impl Docker {
    /// Asks nothing of the engine yet.
    pub fn new(settings: Settings) -> Result<Self, Fault> {
        let host = std::env::var("DOCKER_HOST").ok();
        let socket = faults::socket(settings.socket.as_deref(), host.as_deref())?;
        let engine = Engine::new(&socket);
        Ok(Self { settings, engine, built: Mutex::default(), pulling: Mutex::default() })
    }

    /// Which engine it is, in words.
    pub fn about(&self) -> Result<String, Fault> {
        let version = self.engine.version();
        let version = version.map_err(|e| faults::fault("docker", "ask the engine", e))?;
        let socket = self.engine.socket().display();
        Ok(format!(
            "Docker {}, API {}, {} {}, at {socket}",
            version.engine, version.newest, version.os, version.arch
        ))
    }

    /// Whether a given image is there; an error where it is for another processor.
    fn has_image(&self, image: &str) -> Result<bool, Fault> {
        let found = self.engine.image_arch(image);
        let found = found.map_err(|e| faults::fault("docker", "look for the image", e))?;
        let Some(arch) = found else { return Ok(false) };
        let program = self.settings.program.as_ref();
        let whose = format!("image `{image}`");
        match program.and_then(|program| faults::other_processor(&whose, &arch, program)) {
            Some(fault) => Err(fault),
            None => Ok(true),
        }
    }

    /// Whether a given image is there by now. One that is not is pulled, once for all machines, while
    /// others wait for it.
    fn pull(&self, image: &str) -> Result<bool, Fault> {
        let mut pulling = self.pulling.lock().expect("no thread panics with the pull");
        match pulling.as_ref().map(Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => return Ok(false),
            Some(Ok(Err(why))) => {
                *pulling = None;
                return Err(faults::no_image(image, &why));
            }
            Some(Ok(Ok(())) | Err(TryRecvError::Disconnected)) | None => *pulling = None,
        }
        if self.has_image(image)? {
            return Ok(true);
        }
        let (tell, told) = channel();
        let (engine, image) = (self.engine.clone(), image.to_owned());
        let pull = move || {
            // Where the provider is gone, the image stays with the engine.
            let _ = tell.send(engine.pull(&image));
        };
        let started = Builder::new().name("pull".into()).spawn(pull);
        started.map_err(|e| Fault::retry("docker", format!("cannot start a thread: {e}")))?;
        *pulling = Some(told);
        Ok(false)
    }

    /// The image that a machine is made of. A new one is tried in a container of the name `aside`.
    fn image(&self, run: &Tag, aside: &str, program: &Program) -> Result<String, Fault> {
        if let Some(image) = &self.settings.image {
            return Ok(image.clone());
        }
        let name = container::image_name(program);
        // Held all the while: the others wait for the image, and do not make it too.
        let mut built = self.built.lock().expect("no thread panics with the image");
        if built.as_ref() == Some(&program.sha256) {
            return Ok(name);
        }
        let looked = self.engine.image_arch(&name);
        if looked.map_err(|e| faults::fault("docker", "look for the image", e))?.is_none() {
            self.build(program)?;
            self.check_build(run, aside, &name, program)?;
            self.forget_old_images();
        }
        *built = Some(program.sha256.clone());
        Ok(name)
    }

    fn build(&self, program: &Program) -> Result<(), Fault> {
        let unreadable = |why: std::io::Error| {
            let what = format!("cannot make an image of `{}`: {why}", program.path.display());
            Fault::fix("docker", what, "give an `image` that has what the program needs")
        };
        let needs = Needs::of(&program.path).map_err(unreadable)?;
        let files = image::image_files(program, &needs).map_err(unreadable)?;
        let changes = container::image_changes(program, &needs);
        let (name, tag) = container::image_name_and_tag(program);
        let made = self.engine.import(name, &tag, &files, &changes);
        made.map_err(|e| faults::fault("docker", "make an image of the program", e))
    }

    /// Removes images of old programs; the engine refuses to remove those in use.
    fn forget_old_images(&self) {
        let images = self.engine.images(container::PROGRAM).unwrap_or_default();
        for image in images.iter().skip(IMAGES_MAX) {
            let _ = self.engine.remove_image(image);
        }
    }

    /// Asks the program in a new image which build it is.
    fn check_build(
        &self,
        run: &Tag,
        aside: &str,
        image: &str,
        program: &Program,
    ) -> Result<(), Fault> {
        let call = Call { program, arguments: &["agent", "build"], input: &[], within: BUILD };
        let ran = self.run_aside(run, aside, image, &call)?;
        let said = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
        if ran.code == 0 && said == program.build {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&ran.stderr);
        let words = format!("{said} {}", words.trim()).trim().to_owned();
        let what = format!(
            "the image made of the program does not run it: exit code {}, `{words}` instead of \
             build `{}`",
            ran.code, program.build
        );
        Err(Fault::fix("docker", what, "give an `image` that has what the program needs"))
    }

    /// Runs the program in a container of its own, which is gone afterwards.
    fn run_aside(&self, run: &Tag, name: &str, image: &str, call: &Call<'_>) -> Result<Ran, Fault> {
        let Call { program, arguments, input, within } = *call;
        let told = |doing: &'static str| move |e| faults::fault(name, doing, e);
        // One that a command which was killed has left.
        self.engine.remove(name).map_err(told("remove an old container"))?;
        let spec = container::spec(&self.settings, run, image, program, arguments);
        let id = self.engine.create(name, spec).map_err(told("create a container"))?;
        let ran = self
            .deliver(name, &id, program, true)
            .and_then(|()| self.engine.run_to_end(&id, input, within).map_err(told("run it")));
        if ran.is_err() {
            let _ = self.engine.remove(&id);
        }
        ran
    }

    /// A machine's container, if there is one.
    fn find(&self, run: &Tag, machine: &Machine) -> Result<Option<Container>, Fault> {
        let found = self.engine.container(&machine.handle);
        let found = found.map_err(|e| faults::fault(&machine.name, "look for the container", e))?;
        match found {
            Some(found) if !container::is_of(&found, run) => Err(Fault::replace(
                &machine.name,
                format!("the name `{}` is taken by another container", machine.handle),
                "remove or rename that container if it is of no use",
            )),
            found => Ok(found),
        }
    }

    /// The number of a container that has not been started, made if there is none.
    fn unstarted(&self, run: &Tag, machine: &Machine, program: &Program) -> Result<String, Fault> {
        // A name that another has is not ours to use, not even for a moment.
        self.find(run, machine)?;
        for _ in 0..ATTEMPTS_MAX {
            // Under the machine's own name, which is written down: what is left of it is found.
            let image = self.image(run, &machine.handle, program)?;
            match self.find(run, machine)? {
                Some(found) if found.status == "created" && container::is_for(&found, program) => {
                    return Ok(found.id);
                }
                // Its host has ended or lost its controller: there is no second start.
                Some(found) => self.remove(machine, &found.id)?,
                None => {}
            }
            let spec = container::machine(&self.settings, run, machine, &image, program);
            match self.engine.create(&machine.handle, spec) {
                Ok(id) => return Ok(id),
                // Another caller was faster, or one of that name is still being removed.
                Err(Error::Refused { status: 409, .. }) => {}
                Err(e @ Error::Refused { status: 404, .. }) if is_about_image(&e) => {
                    // It was there: another user of the engine has removed it meanwhile.
                    if self.settings.image.is_some() {
                        let what = format!("the image `{image}` is gone from the engine");
                        return Err(Fault::retry(&machine.name, what));
                    }
                    *self.built.lock().expect("no thread panics with the image") = None;
                }
                Err(e) => return Err(faults::fault(&machine.name, "create the container", e)),
            }
        }
        Err(Fault::retry(&machine.name, "its container could not be created"))
    }

    /// Puts the program into a container that has not got it.
    fn deliver(
        &self,
        machine: &str,
        id: &str,
        program: &Program,
        is_for_program: bool,
    ) -> Result<(), Fault> {
        // An image that was made of it has it.
        if self.settings.image.is_none() && is_for_program {
            return Ok(());
        }
        let told = |e| faults::fault(machine, "deliver the program", e);
        if self.engine.has_file(id, &image::program_path(program)).map_err(told)? {
            return Ok(());
        }
        let files = image::program_files(program).map_err(|why| {
            let what = format!("cannot read the program `{}`: {why}", program.path.display());
            Fault::fix(machine, what, "start the command again")
        })?;
        self.engine.put(id, &files).map_err(told)
    }

    fn remove(&self, machine: &Machine, id: &str) -> Result<(), Fault> {
        let removed = self.engine.remove(id);
        removed.map_err(|e| faults::fault(&machine.name, "remove the container", e))
    }

    /// The channel over a container's streams, once the host has said something.
    fn listen(
        &self,
        machine: &Machine,
        program: &Program,
        stream: Stream,
    ) -> Result<Channel, Fault> {
        let lost = |e| faults::fault(&machine.name, "talk to the host", Error::Lost(e));
        let Stream { reading, writing } = stream;
        let stderr_tail = StderrTail::default();
        let mut output = Output::new(Frames::new(reading), stderr_tail.clone());
        writing.set_read_timeout(Some(HELLO)).map_err(lost)?;
        let mut first = vec![0; 4096];
        let read = output.read(&mut first).map_err(|e| match e.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let what = format!("the host has said nothing for {} s", HELLO.as_secs());
                Fault::replace(&machine.name, what, "see whether the engine's machine is busy")
            }
            _ => lost(e),
        })?;
        if read == 0 {
            let image = self.settings.image.clone();
            let image = image.unwrap_or_else(|| container::image_name(program));
            return Err(faults::silent(&machine.name, &image, program, &stderr_tail.text()));
        }
        first.truncate(read);
        // The host speaks every few seconds; the reader checks that.
        writing.set_read_timeout(None).map_err(lost)?;
        writing.set_write_timeout(None).map_err(lost)?;
        let socket = writing.try_clone().map_err(lost)?;
        Ok(Channel {
            reading: Box::new(Cursor::new(first).chain(output)),
            writing: Box::new(container::Input(writing)),
            closing: Arc::new(move || {
                // It may be closed already.
                let _ = socket.shutdown(Shutdown::Both);
            }),
            stderr_tail,
        })
    }

    fn listed(&self, label: &str) -> Result<Vec<Listed>, Fault> {
        let listed = self.engine.containers(label);
        let mut listed = listed.map_err(|e| faults::fault("docker", "list containers", e))?;
        // What the engine removes already does not count.
        listed.retain(|one| one.state != "removing");
        listed.sort_by(|one, other| one.names.cmp(&other.names));
        Ok(listed)
    }
}

/// Whether something is missing because the image is; networks may be, too.
fn is_about_image(error: &Error) -> bool {
    error.to_string().to_lowercase().contains("no such image")
}

impl Kind for Docker {
    type Settings = recipe::Settings;
    const IS_ALWAYS_ASKED: bool = true;

    fn make(settings: &Self::Settings, purpose: Purpose) -> Result<Self, Fault> {
        Self::new(Settings::of(settings, purpose)?)
    }

    fn needs() -> Vec<Finding> {
        let about = || -> Result<String, Fault> {
            let docker = Self::new(Settings::default())?;
            docker.check()?;
            docker.about()
        };
        vec![match about() {
            Ok(said) => Finding::ok("engine", said),
            Err(fault) => Finding::fault("engine", fault),
        }]
    }

    fn places(settings: &Self::Settings) -> Vec<Place<Self::Settings>> {
        let socket = settings.docker.socket.as_ref();
        let name = socket.map_or_else(|| "docker".into(), |at| format!("docker at {at}"));
        let docker = settings.docker.clone();
        vec![Place::new(name, recipe::Settings { docker, ..recipe::Settings::default() })]
    }

    fn check_settings(settings: &Self::Settings) -> Result<(), Fault> {
        Settings::of(settings, Purpose::default())?.check_mounts()
    }
}

impl Provider for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn check(&self) -> Result<(), Fault> {
        self.settings.check_mounts()?;
        let now = |fault: Fault| Fault { remedy: Remedy::Fix, ..fault };
        let version = self.engine.version();
        let version = version.map_err(|e| now(faults::fault("docker", "ask the engine", e)))?;
        self.engine.api().map_err(|e| now(faults::fault("docker", "use the engine", e)))?;
        if version.os != "linux" {
            let what = format!("the engine's containers run {}", version.os);
            return Err(Fault::fix("docker", what, "switch it to Linux containers"));
        }
        let whose = format!("the engine at `{}`", self.engine.socket().display());
        let other = |program| faults::other_processor(&whose, &version.arch, program);
        if let Some(fault) = self.settings.program.as_ref().and_then(other) {
            return Err(fault);
        }
        // One that is not there is pulled when machines are asked for.
        match &self.settings.image {
            Some(image) => self.has_image(image).map(drop).map_err(now),
            None => Ok(()),
        }
    }

    fn remarks(&self) -> Vec<String> {
        let network = self.settings.network.as_deref().unwrap_or("bridge");
        // Without an answer there is nothing to remark.
        let bridge = self.engine.bridge(network).ok().flatten();
        bridge
            .and_then(|bridge| bridge::remark(Path::new(bridge::DEVICES), &bridge))
            .into_iter()
            .collect()
    }

    fn capacity(&self) -> Option<usize> {
        self.settings.machines_max
    }

    fn plan(&self, run: &Tag, number: u32) -> Option<Machine> {
        // There is no end to names; how many there are at a time is for the pool to mind.
        let (name, handle) = (format!("m{number}"), format!("{run}-m{number}"));
        Some(Machine::new(name, handle, self.settings.groups.clone()))
    }

    fn create(&self, run: &Tag, machine: &Machine) -> Result<Made, Fault> {
        let Some(program) = &self.settings.program else {
            let what = "there is no program to make a machine for";
            return Err(Fault::fix(&machine.name, what, "start the command again"));
        };
        let is_there = |found: Container| matches!(&*found.status, "created" | "running");
        if self.find(run, machine)?.is_some_and(is_there) {
            return Ok(Made::There);
        }
        if let Some(image) = &self.settings.image
            && !self.pull(image)?
        {
            return Ok(Made::Pending { why: format!("the image `{image}` is being pulled") });
        }
        self.unstarted(run, machine, program)?;
        Ok(Made::There)
    }

    fn gives_notice(&self) -> bool {
        true
    }

    fn notices(&self, run: &Tag) -> Result<Vec<Notice>, Fault> {
        let listed = self.engine.containers(&format!("{}={run}", container::RUN));
        let listed = listed.map_err(|e| faults::fault("docker", "list containers", e))?;
        Ok(listed.iter().filter_map(container::notice_of).collect())
    }

    fn open(&self, run: &Tag, machine: &Machine, program: &Program) -> Result<Channel, Fault> {
        let id = self.unstarted(run, machine, program)?;
        self.deliver(&machine.name, &id, program, true)?;
        let told = |doing: &'static str| move |e| faults::fault(&machine.name, doing, e);
        // First attached, then started: the host must find its standard input open, and nothing of
        // what it says may be lost.
        let stream = self.engine.attach(&id).map_err(told("attach to the container"))?;
        let opened = self
            .engine
            .start(&id)
            .map_err(told("start the container"))
            .and_then(|()| self.listen(machine, program, stream));
        if opened.is_err() {
            // Nothing is left of an attempt; what is wrong is known already.
            let _ = self.engine.remove(&id);
        }
        opened
    }

    fn run(&self, run: &Tag, machine: &Machine, call: &Call<'_>) -> Result<Ran, Fault> {
        let Call { program, arguments, input, within } = *call;
        let gone = || {
            let what = format!("container `{}` is gone", machine.handle);
            Fault::replace(&machine.name, what, "`docker ps` lists the containers there are")
        };
        let found = self.find(run, machine)?.ok_or_else(gone)?;
        match found.status.as_str() {
            "running" => {
                let is_for_program = container::is_for(&found, program);
                self.deliver(&machine.name, &found.id, program, is_for_program)?;
                let path = image::program_path(program);
                let command: Vec<&str> =
                    [path.as_str()].into_iter().chain(arguments.iter().copied()).collect();
                let ran = self.engine.exec(&found.id, &command, input, within);
                ran.map_err(|e| faults::fault(&machine.name, "run the program", e))
            }
            // Nothing runs there that a command could be added to. There is nothing in it yet
            // either, so that another one like it will do.
            "created" => {
                let name = format!("{}-run", machine.handle);
                let image = self.image(run, &name, program)?;
                self.run_aside(run, &name, &image, call)
            }
            _ => Err(gone()),
        }
    }

    fn list(&self, run: &Tag) -> Result<Vec<Machine>, Fault> {
        let listed = self.listed(&format!("{}={run}", container::RUN))?;
        Ok(listed.iter().filter_map(container::machine_of).collect())
    }

    fn destroy(&self, run: &Tag, machine: &Machine) -> Result<(), Fault> {
        match self.find(run, machine)? {
            Some(found) => self.remove(machine, &found.id),
            None => Ok(()),
        }
    }

    fn leaks(&self) -> Result<Vec<Leak>, Fault> {
        let listed = self.listed(container::RUN)?;
        Ok(listed.iter().filter_map(container::leak_of).collect())
    }

    fn inventory(&self, machine: &Machine) -> String {
        let mut words =
            format!("ansible_connection=community.docker.docker ansible_host={}", machine.handle);
        let socket = self.engine.socket();
        if socket != std::path::Path::new(faults::SOCKET) {
            let more = format!(" ansible_docker_extra_args=\"-H unix://{}\"", socket.display());
            words.push_str(&more);
        }
        words
    }
}
