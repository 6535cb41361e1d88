//! A machine as the engine's documents know it: what a container and an image are made with, and a
//! machine made out again from what the engine lists.
//!
//! Owns labels and limits. Never asks an engine.

use super::engine::{Container, Listed};
use super::image::{Needs, program_path};
use super::{Mount, Settings};
use crate::program::Program;
use crate::provider::{Leak, Machine, Notice, Tag, is_name};
use planaria_recipe::pool::providers::docker::PIDS_DEFAULT;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Label with the name of the run.
pub const RUN: &str = "planaria.run";
/// Label with the machine's name.
const MACHINE: &str = "planaria.machine";
/// Label with the machine's groups, with commas between.
const GROUPS: &str = "planaria.groups";
/// Label with the hash of the program that it runs.
pub const PROGRAM: &str = "planaria.program";
/// Name of images made of programs; their tags are hashes.
const IMAGE: &str = "planaria";
/// Digits of a hash in a tag.
const TAG_DIGITS: usize = 16;
/// Longest name of a host, in bytes.
const HOSTNAME_BYTES_MAX: usize = 63;
/// What set-up steps need that install packages. Everything else is dropped.
const CAPABILITIES: [&str; 7] =
    ["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"];

/// Name and tag of the image made of a program.
pub fn image_name_and_tag(program: &Program) -> (&'static str, String) {
    (IMAGE, program.sha256.chars().take(TAG_DIGITS).collect())
}

/// The same as one word.
pub fn image_name(program: &Program) -> String {
    let (name, tag) = image_name_and_tag(program);
    format!("{name}:{tag}")
}

/// What an image made of a program has besides files.
pub fn image_changes(program: &Program, needs: &Needs) -> Vec<String> {
    let folders = needs.folders();
    let folders: Vec<_> = folders.iter().map(|folder| folder.to_string_lossy()).collect();
    let mut changes = vec![
        format!("ENTRYPOINT [\"{}\"]", program_path(program)),
        format!("LABEL {PROGRAM}={}", program.sha256),
    ];
    if !folders.is_empty() {
        // The loader's list of other places does not come along.
        changes.push(format!("ENV LD_LIBRARY_PATH={}", folders.join(":")));
    }
    changes
}

/// A container that is a machine.
pub fn machine(
    settings: &Settings,
    run: &Tag,
    machine: &Machine,
    image: &str,
    program: &Program,
) -> Value {
    let command = ["agent", "host", run.as_str()];
    let mut spec = spec(settings, run, image, program, &command);
    spec["Labels"][MACHINE] = machine.name.clone().into();
    spec["Labels"][GROUPS] = machine.groups.join(",").into();
    spec["StdinOnce"] = (!settings.detached).into();
    if !settings.mounts.is_empty() {
        let mount = |mount: &Mount| {
            json!({
                "Type": "bind",
                "Source": mount.source,
                "Target": mount.target,
                "ReadOnly": mount.is_read_only,
            })
        };
        spec["HostConfig"]["Mounts"] = settings.mounts.iter().map(mount).collect();
    }
    if let Some(gpus) = settings.gpus {
        let request = json!({ "Driver": "nvidia", "Count": gpus, "Capabilities": [["gpu"]] });
        spec["HostConfig"]["DeviceRequests"] = json!([request]);
    }
    if machine.name.len() <= HOSTNAME_BYTES_MAX {
        spec["Hostname"] = machine.name.clone().into();
    }
    spec
}

/// A container for one command.
pub fn spec(
    settings: &Settings,
    run: &Tag,
    image: &str,
    program: &Program,
    arguments: &[&str],
) -> Value {
    let nano_cpus = settings.cpus.map_or(0, |cpus| (cpus * 1e9) as i64);
    json!({
        "Image": image,
        "Entrypoint": [program_path(program)],
        "Cmd": arguments,
        "Labels": { RUN: run.as_str(), PROGRAM: program.sha256 },
        "OpenStdin": true,
        // The end of the channel is the end of the host's standard input.
        "StdinOnce": true,
        "AttachStdin": true,
        "AttachStdout": true,
        "AttachStderr": true,
        "Tty": false,
        "HostConfig": {
            // Nothing is left of a machine whose host has ended.
            "AutoRemove": true,
            // Set-up steps leave children without a parent; this reaps them.
            "Init": true,
            "CapDrop": ["ALL"],
            "CapAdd": CAPABILITIES,
            // Nor does a program in the image give more to who starts it.
            "SecurityOpt": ["no-new-privileges"],
            "PidsLimit": settings.pids.unwrap_or(PIDS_DEFAULT),
            // What a host says is for its channel, and is not to lie on the engine's disk.
            "LogConfig": { "Type": "none" },
            "NetworkMode": settings.network.as_deref().unwrap_or("default"),
            "NanoCpus": nano_cpus,
            "Memory": settings.memory_bytes.unwrap_or(0),
        },
    })
}

/// Whether a container belongs to a run.
pub fn is_of(container: &Container, run: &Tag) -> bool {
    container.labels.get(RUN).is_some_and(|label| label == run.as_str())
}

/// Whether a container was made to run this program.
pub fn is_for(container: &Container, program: &Program) -> bool {
    container.labels.get(PROGRAM) == Some(&program.sha256)
}

/// The machine that a container is. One that only ran a command has no name but its own. Labels may
/// be set by others: what cannot be ours is nothing.
pub fn machine_of(listed: &Listed) -> Option<Machine> {
    Tag::new(listed.labels.get(RUN)?)?;
    let handle = listed.names.first()?.trim_start_matches('/').to_owned();
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !handle.starts_with(|c: char| c.is_ascii_alphanumeric()) || !handle.chars().all(letter) {
        return None;
    }
    let name = listed.labels.get(MACHINE).filter(|name| is_name(name)).unwrap_or(&handle).clone();
    let groups = listed.labels.get(GROUPS).map(String::as_str).unwrap_or_default();
    let groups = groups.split(',').filter(|group| is_name(group)).map(str::to_owned);
    Some(Machine::new(name, handle, groups.collect()))
}

/// A container as `doctor --leaks` lists it.
pub fn leak_of(listed: &Listed) -> Option<Leak> {
    let machine = machine_of(listed)?;
    let what = format!("container {} ({})", machine.handle, listed.state);
    let busy = listed.state == "running";
    Some(Leak { run: listed.labels.get(RUN)?.clone(), what, machine, busy })
}

/// The notice that a container in this state gives of its end: others use the engine too. One that is
/// asked to stop gives none, as its host ends at once, and one that is paused does nothing until
/// it is lost.
pub fn notice_of(listed: &Listed) -> Option<Notice> {
    let why = match listed.state.as_str() {
        "paused" => "its container was paused",
        "removing" | "dead" => "its container is being removed",
        _ => return None,
    };
    let machine = machine_of(listed)?.name;
    Some(Notice { machine, within: Duration::ZERO, why: why.to_owned() })
}

/// A host's standard input, which ends when it is dropped.
pub struct Input(pub UnixStream);

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // The other direction stays: the host may have something to say at its end.
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::Purpose;
    use planaria_recipe::pool::providers::docker as recipe;
    use std::collections::BTreeMap;

    fn program() -> Program {
        let (sha256, build) = ("ab".repeat(32), "x".into());
        Program { path: "/x".into(), sha256, bytes: 1, arch: "x86_64", build }
    }

    #[test]
    fn a_machine_is_made_out_again_from_its_labels() {
        let run = Tag::new("digits-1").unwrap();
        let groups = vec!["server".to_owned(), "fast".to_owned()];
        let made = Machine::new("m3", "digits-1-m3", groups);
        let spec = machine(&Settings::default(), &run, &made, "image", &program());
        let labels: BTreeMap<String, String> =
            serde_json::from_value(spec["Labels"].clone()).unwrap();
        let names = vec!["/digits-1-m3".to_owned()];
        let listed = Listed { names, state: "running".into(), labels };
        assert_eq!(machine_of(&listed), Some(made));
        let leak = leak_of(&listed).unwrap();
        assert_eq!(leak.what, "container digits-1-m3 (running)");
        assert_eq!(leak.run, "digits-1");
        for (state, expect) in [
            ("created", None),
            ("running", None),
            ("exited", None),
            ("paused", Some("its container was paused")),
            ("removing", Some("its container is being removed")),
        ] {
            let notice = notice_of(&Listed { state: state.into(), ..listed.clone() });
            assert_eq!(notice.as_ref().map(|notice| &*notice.why), expect, "{state}");
            assert!(notice.is_none_or(|notice| notice.machine == "m3"));
        }
        let foreign = |key: &str, value: &str| {
            let mut other = listed.clone();
            other.labels.insert(key.to_owned(), value.to_owned());
            other
        };
        assert_eq!(leak_of(&foreign(RUN, "../x")), None);
        assert_eq!(machine_of(&foreign(MACHINE, "-rf")).unwrap().name, "digits-1-m3");
    }

    #[test]
    fn a_container_has_nothing_of_this_machine() {
        let run = Tag::new("r").unwrap();
        let made = Machine::new("m0", "r-m0", vec![]);
        let spec = machine(&Settings::default(), &run, &made, "image", &program());
        let host = spec["HostConfig"].as_object().unwrap();
        for absent in ["Binds", "Mounts", "Privileged", "PidMode", "Devices"] {
            assert!(!host.contains_key(absent), "{absent}");
        }
        assert_eq!((&host["AutoRemove"], &spec["StdinOnce"]), (&true.into(), &true.into()));
        let settings = Settings { detached: true, ..Settings::default() };
        let spec = machine(&settings, &run, &made, "image", &program());
        assert_eq!(spec["StdinOnce"], false);
    }

    #[test]
    fn a_container_gains_nothing_and_uses_no_more_than_it_may() {
        let run = Tag::new("r").unwrap();
        let host = |settings: &Settings| {
            spec(settings, &run, "image", &program(), &[])["HostConfig"].clone()
        };
        let usual = host(&Settings::default());
        assert_eq!(usual["SecurityOpt"], json!(["no-new-privileges"]));
        assert_eq!((&usual["PidsLimit"], &usual["Memory"]), (&json!(4096), &json!(0)));
        let docker: recipe::Docker =
            serde_json::from_str(r#"{"cpus": 1.5, "memory_mib": 512, "pids": 100}"#).unwrap();
        let settings = recipe::Settings { docker, ..recipe::Settings::default() };
        let bounded = host(&Settings::of(&settings, Purpose::default()).unwrap());
        assert_eq!(bounded["NanoCpus"], 1_500_000_000);
        assert_eq!((&bounded["PidsLimit"], &bounded["Memory"]), (&json!(100), &json!(512 << 20)));
    }

    #[test]
    fn what_is_named_is_seen() {
        let run = Tag::new("r").unwrap();
        let made = Machine::new("m0", "r-m0", vec![]);
        let mount = Mount { source: "/data/x".into(), target: "/data".into(), is_read_only: true };
        let settings = Settings { mounts: vec![mount], gpus: Some(-1), ..Settings::default() };
        let spec = machine(&settings, &run, &made, "image", &program());
        let bind =
            json!({"Type": "bind", "Source": "/data/x", "Target": "/data", "ReadOnly": true});
        assert_eq!(spec["HostConfig"]["Mounts"], json!([bind]));
        assert_eq!(spec["HostConfig"]["DeviceRequests"][0]["Count"], -1);
        let missing = settings.check_mounts().unwrap_err();
        assert!(missing.what.starts_with("`/data/x` of `pool.docker.mounts`"), "{}", missing.what);
    }
}
