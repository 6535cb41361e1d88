//! Planted secrets, and the keys of a run: nowhere but where they were asked for.

use crate::docker::system_files;
use crate::hosts::Hosts;
use crate::support::engine::Engine;
use crate::support::eventually;
use crate::support::pooled::{
    EPOCHS, docker, ends_well, engine_is_clean, hosts_are_clean, processes, ssh, workspace,
};
use crate::support::workspace::Workspace;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What is planted, and must not be found: in a variable, and in a file.
const PLANTED: [&str; 2] = ["jBq7-in-a-variable-9fK2", "Zt4w-in-a-file-m81X"];
/// How every private key begins.
const KEY: &str = "PRIVATE KEY";

/// A step that shows both and stays a while, and a check that shows one.
const SETUP: &str = r#"
setup:
  - run: 'echo "has $ONE"; echo "and $TWO" >&2; sleep 1.5'
    env: {ONE: "${env:PLANTED}", TWO: "file:home/planted.txt"}
  - {check: 'echo "checked $ONE"', env: {ONE: "${env:PLANTED}"}}
"#;
/// A file that is to hold them.
const TEMPLATE: &str = r#"
  - {template: conf.in, to: ~/conf, values: {one: "${env:PLANTED}", two: "file:home/planted.txt"}}
"#;

fn planted(pool: &str, more: &str) -> Workspace {
    let workspace = workspace(pool, EPOCHS, &format!("{SETUP}{}", more.trim_start_matches('\n')));
    workspace.put("home/planted.txt", &format!("{}\n", PLANTED[1]));
    workspace.put("conf.in", "{{one}} {{two}}\n");
    workspace
}

/// Which of these is in some bytes.
fn found<'a>(bytes: &[u8], words: &[&'a str]) -> Option<&'a str> {
    let text = String::from_utf8_lossy(bytes);
    words.iter().find(|word| text.contains(**word)).copied()
}

/// Looks at every file below; links are not followed.
fn each_file(folder: &Path, see: &mut dyn FnMut(&Path, &[u8])) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => each_file(&entry.path(), see),
            Ok(kind) if kind.is_file() => {
                see(&entry.path(), &fs::read(entry.path()).unwrap_or_default());
            }
            _ => {}
        }
    }
}

/// No file of a run's folder has a secret, and a key only where its owner alone can read it.
#[track_caller]
fn folder_is_silent(run: &Path) -> usize {
    let mut seen = 0;
    each_file(run, &mut |path, bytes| {
        seen += 1;
        assert_eq!(found(bytes, &PLANTED), None, "{}", path.display());
        // It may be gone by now.
        let mode = fs::metadata(path).map_or(0, |about| about.permissions().mode() & 0o077);
        assert!(mode == 0 || found(bytes, &[KEY]).is_none(), "{}: {mode:o}", path.display());
    });
    seen
}

/// No process of the run shows one in its arguments or variables, on whatever machine it is.
#[track_caller]
fn processes_are_silent(run: &Path) -> usize {
    let all = processes(run);
    for (pid, line) in &all {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let (cmdline, environ) = (read("cmdline"), read("environ"));
        // A host's child looks like the host until it becomes a set-up step, which is given secrets.
        if read("cmdline") != cmdline {
            continue;
        }
        for (file, bytes) in [("cmdline", &cmdline), ("environ", &environ)] {
            assert_eq!(found(bytes, &[PLANTED[1], KEY, PLANTED[0]]), None, "{file} of {line}");
        }
    }
    all.len()
}

/// Trains, looking at everything again and again.
#[track_caller]
fn watched(workspace: &Workspace, look: &mut dyn FnMut()) {
    let mut training =
        workspace.start(&["train", "pool.yaml", "--json"], &[("PLANTED", PLANTED[0])]);
    workspace.hears(&mut training, " on ");
    let run = workspace.run();
    let mut most = 0;
    eventually("the tenth epoch", || {
        most = most.max(processes_are_silent(&run));
        folder_is_silent(&run);
        look();
        workspace.epochs_told() >= 10
    });
    assert!(most >= 4, "a coordinator, a host, a server and a worker at least were seen: {most}");
    let report = ends_well(workspace, training);
    assert_eq!(found(report.as_bytes(), &[PLANTED[0], PLANTED[1], KEY]), None);
    assert_eq!(found(workspace.said().as_bytes(), &[PLANTED[0], PLANTED[1], KEY]), None);
    assert!(folder_is_silent(&run) > 4, "files were seen");
    let mut logged = String::new();
    each_file(&run.join("logs"), &mut |_, bytes| logged += &String::from_utf8_lossy(bytes));
    for line in ["has ***\n", "and ***\n", "checked ***\n"] {
        assert!(logged.contains(line), "{line}: {logged}");
    }
    assert!(!run.join("control.json").exists());
}

#[test]
fn on_hosts() {
    let Some(hosts) = Hosts::up(2, &[]) else { return };
    let workspace = planted(&ssh(&hosts, "h1, h2", 2), TEMPLATE);
    watched(&workspace, &mut || {});
    for host in [1, 2] {
        let both = format!("-e {} -e {}", PLANTED[0], PLANTED[1]);
        let command = format!("grep -rlaF {both} /root /home /tmp /var/tmp /etc || true");
        assert_eq!(hosts.on(host, &command), "/root/conf");
        let expect = format!("600 {} {}", PLANTED[0], PLANTED[1]);
        assert_eq!(hosts.on(host, "stat -c %a conf | tr '\\n' ' '; cat conf"), expect);
        let keys = hosts.on(host, "grep -rlaF 'PRIVATE KEY' /root/.cache /tmp || true");
        // The program itself knows how a key begins.
        assert!(keys.lines().all(|file| file.starts_with("/root/.cache/planaria/bin/")), "{keys}");
    }
    hosts_are_clean(&hosts, &[1, 2], &workspace.run());
}

#[test]
fn in_containers() {
    let Some(engine) = Engine::up() else { return };
    let mut files = system_files();
    files.push("/bin/sleep".to_owned());
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    engine.import("lab:1", &files);
    let workspace = planted(&docker(&engine, 1, ", image: \"lab:1\""), "");
    let words = [PLANTED[0], PLANTED[1], KEY];
    let mut seen = 0;
    watched(&workspace, &mut || {
        let listed = engine.docker(&["ps", "--all", "--quiet"]).stdout;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        for container in listed.lines() {
            seen += 1;
            for verb in ["inspect", "logs"] {
                let output = engine.docker(&[verb, container]);
                assert_eq!(found(&output.stdout, &words), None, "docker {verb}");
            }
        }
        // What the engine keeps about containers, their streams among it.
        each_file(&engine.containers(), &mut |path, bytes| {
            assert_eq!(found(bytes, &words), None, "{}", path.display());
        });
    });
    assert!(seen > 0, "there was a container");
    let images = engine.docker_ok(&["images", "--quiet"]);
    for image in images.lines() {
        let output = engine.docker(&["inspect", image]);
        assert_eq!(found(&output.stdout, &words), None);
    }
    engine_is_clean(&engine, &workspace.run());
}
