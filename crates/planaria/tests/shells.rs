//! What shells and `man` are told of the command line.

#[expect(dead_code, reason = "these commands need no run")]
mod binary;

use binary::{Place, talk};
use std::io::Write;
use std::process::{Command, Stdio};

/// Every command of `planaria --help`.
fn commands(place: &Place) -> Vec<String> {
    let help = printed(place, &["--help"]);
    let list = help.split("Commands:\n").nth(1).expect("help lists commands");
    let list = list.split("\n\n").next().expect("and ends the list");
    // Further lines of a command's description stand further right.
    let named = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<String> =
        named.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect();
    assert!(names.len() >= 16 && names.contains(&"train".to_owned()), "{names:?}");
    names.into_iter().filter(|name| name != "help").collect()
}

fn printed(place: &Place, arguments: &[&str]) -> String {
    let output = place.run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", talk(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// A program that is given `text`; nothing where it is not installed.
fn given(program: &str, arguments: &[&str], text: &str) -> Option<(bool, String)> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn every_shell_completes_every_command_and_none_of_our_own() {
    let place = Place::new();
    let commands = commands(&place);
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&place, &["completions", shell]);
        for name in &commands {
            let word = |text: &str| text.split(|c: char| !c.is_alphanumeric()).any(|w| w == name);
            assert!(script.lines().any(word), "{shell} does not know `{name}`");
        }
        for option in ["scaling", "detach", "torchrun"] {
            assert!(script.contains(option), "{shell} does not know `--{option}`");
        }
        assert!(!script.contains("__agent") && !script.contains("-a \"agent\""), "{shell}");
        let check: &[&str] = if shell == "fish" { &["--no-execute"] } else { &["-n"] };
        if let Some((accepted, said)) = given(shell, check, &script) {
            assert!(accepted && said.is_empty(), "{shell}: {said}");
        }
    }
    let unknown = place.run(&["completions", "csh"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", talk(&unknown));
    assert!(talk(&unknown).contains("bash, zsh, fish"), "{}", talk(&unknown));
}

#[test]
fn manual_pages_tell_of_every_command() {
    let place = Place::new();
    let page = printed(&place, &["man"]);
    assert!(page.contains(".TH planaria 1"), "{page}");
    assert!(page.contains("interrupted by Ctrl"), "exit codes are told: {page}");
    for name in commands(&place) {
        // In roff a hyphen that is typed is `\-`.
        assert!(page.contains(&format!("planaria\\-{name}(1)")), "`{name}` in {page}");
        let own = printed(&place, &["man", &name]);
        assert!(own.contains(&format!("planaria {name}")), "{own}");
        for page in [&page, &own] {
            if let Some((accepted, said)) =
                given("groff", &["-Kutf8", "-man", "-Tutf8", "-ww", "-z"], page)
            {
                assert!(accepted && said.is_empty(), "{name}: {said}");
            }
        }
    }
    let unknown = place.run(&["man", "fly"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", talk(&unknown));
    assert!(talk(&unknown).contains("there is no command `fly`"), "{}", talk(&unknown));
}
