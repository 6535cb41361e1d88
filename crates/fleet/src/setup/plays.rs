//! Playbooks under way, as the machine knows of them.
//!
//! Owns a file of each in the host's folder there, and a variable by which all that it starts there
//! is found. What Ansible brings to a machine by ssh has no parent of ours, neither here nor there,
//! and goes on when `ansible-playbook` is killed. The set-up ends it after a failure, the host when
//! its channel ends, and the pool when it gives the machine back.

use crate::shell::quoted;
use std::path::Path;
use std::process::{Command, Stdio};

/// Defines `end_plays FOLDER`.
pub const ENDING: &str = include_str!("plays.sh");
/// Where the files are, in the host's folder.
const FOLDER: &str = "plays";

/// Where programs are made that set the variable and go on as a shell; any user that a task becomes
/// must be able to start them.
const SHELL: &str = "/tmp/planaria-play-";

/// For `sh` in the host's folder: the play begins. Prints the shell that Ansible is to use there, which
/// must be the name of one program: modules start it. Nothing where none can be made.
pub(super) fn begin(play: &str) -> String {
    let play = quoted(play);
    format!(
        "mkdir -p {FOLDER} && : >{FOLDER}/{play} || exit 1
        shell=$(mktemp {SHELL}XXXXXXXXXX) || exit 0
        echo \"$shell\" >{FOLDER}/{play}
        printf '#!/bin/sh\\nexport PLANARIA_PLAY=%s\\nexec /bin/sh \"$@\"\\n' {play} >\"$shell\"
        chmod 755 \"$shell\" && \"$shell\" -c true && echo \"$shell\""
    )
}

/// The shell that [`begin`] has printed.
pub(super) fn shell(printed: &[u8]) -> Option<String> {
    let printed = String::from_utf8_lossy(printed);
    printed.lines().rfind(|line| line.starts_with(SHELL)).map(str::to_owned)
}

/// For `sh` in the host's folder: the play has ended well, and what it started may stay.
pub(super) fn end(play: &str) -> String {
    format!("{ENDING}forget_play {FOLDER}/{}", quoted(play))
}

/// For `sh` in the host's folder: the play has not ended well.
pub(super) fn give_up() -> String {
    format!("{ENDING}end_plays .")
}

/// On the machine: ends all that plays under way have started.
pub(crate) fn end_all(host_folder: &Path) {
    if !host_folder.join(FOLDER).exists() {
        return;
    }
    let mut sh = Command::new("/bin/sh");
    sh.arg("-c").arg(format!("{ENDING}end_plays \"$0\"")).arg(host_folder);
    // What cannot be ended now is when the machine is given back.
    let _ = sh.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    #[test]
    fn what_a_play_under_way_has_started_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let sleeper = |play: &str| {
            let mut sleep = Command::new("sleep");
            sleep.arg("1000").env("PLANARIA_PLAY", play).process_group(0).spawn().unwrap()
        };
        let (own, other) = (format!("a-{}", std::process::id()), "b-1");
        let (mut lost, mut kept) = (sleeper(&own), sleeper(other));
        end_all(folder.path());
        let tell = |text: String| {
            let mut sh = Command::new("sh");
            assert!(sh.args(["-c", &text]).current_dir(&folder).status().unwrap().success());
        };
        tell(begin(&own));
        // Ansible's shell there sets the variable, and is gone with the play.
        let mut sh = Command::new("sh");
        let printed = sh.args(["-c", &begin("ended")]).current_dir(&folder).output().unwrap();
        let marked = shell(&printed.stdout).unwrap();
        let said = Command::new(&marked).args(["-c", "echo $PLANARIA_PLAY $0", "x"]).output();
        assert_eq!(String::from_utf8_lossy(&said.unwrap().stdout), "ended x\n");
        tell(end("ended"));
        assert!(!Path::new(&marked).exists());
        // A child in exec has no variables yet.
        for _ in 0..100 {
            end_all(folder.path());
            if lost.try_wait().unwrap().is_some() {
                break;
            }
            tell(begin(&own));
        }
        assert!(!lost.wait().unwrap().success());
        assert!(kept.try_wait().unwrap().is_none(), "another play's");
        kept.kill().unwrap();
        kept.wait().unwrap();
        assert_eq!(std::fs::read_dir(folder.path().join(FOLDER)).unwrap().count(), 0);
    }
}
