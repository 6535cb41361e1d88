//! The commands of steps, as text for `sh`.
//!
//! Owns what is said to package managers and how files get to their places. Pure: text in, text
//! out. Exit codes of their own say what is missing on the machine.

use crate::shell::{path, quoted};
use planaria_store::hash::sha256;

/// Exit code: what needs root cannot be had.
pub(super) const NO_SUDO: i32 = 190;
/// Exit code: there is no `apt-get`.
pub(super) const NO_APT: i32 = 191;
/// Exit code: there is no `python3`.
pub(super) const NO_PYTHON: i32 = 192;
/// Exit code: no virtual environment can be made.
pub(super) const NO_VENV: i32 = 193;
/// Exit code: there is no `tar`.
pub(super) const NO_TAR: i32 = 194;

/// Where packages of Python go that have no place of their own.
pub(super) const VENV: &str = "~/.cache/planaria/venv";
/// Where steps that must not run twice at a time lock each other out.
const LOCKS: &str = "~/.cache/planaria/locks";
/// Longest wait for another package manager, in seconds.
const LOCK_SECONDS_MAX: u64 = 300;

/// What a script's own exit code means: what is missing, and what to do about it.
pub(super) fn meaning(code: i32, machine: &str) -> Option<(String, &'static str)> {
    let (what, hint) = match code {
        NO_SUDO => (
            format!("no sudo on {machine}: this step needs root, and `sudo -n` does not give it"),
            "log in as root, let the user run sudo without a password, or have it installed already",
        ),
        NO_APT => (
            format!("no apt-get on {machine}: it is not a Debian or Ubuntu"),
            "use `run` with the machine's own package manager",
        ),
        NO_PYTHON => {
            (format!("no python3 on {machine}"), "add `- {apt: [python3, python3-venv]}` before")
        }
        NO_VENV => (
            format!("python3 on {machine} cannot make virtual environments"),
            "add `- {apt: [python3-venv]}` before",
        ),
        NO_TAR => (format!("no tar on {machine}"), "add `- {apt: [tar]}` before"),
        _ => return None,
    };
    Some((what, hint))
}

/// Installs packages of the system; those that are there already need no root.
pub(super) fn apt(packages: &[String], variables: &[&str], seconds: u64) -> String {
    let lock = (seconds / 2).min(LOCK_SECONDS_MAX);
    let packages = words(packages);
    let keep = match variables {
        [] => String::new(),
        names => format!(" --preserve-env={}", names.join(",")),
    };
    format!(
        r#"have() {{
  case $1 in *[=/:]*) return 1 ;; esac
  case $(dpkg-query -W -f='${{db:Status-Abbrev}}' "$1" 2>/dev/null) in 'ii '*) return 0 ;; esac
  return 1
}}
command -v apt-get >/dev/null 2>&1 || exit {NO_APT}
missing=
for package in {packages}; do have "$package" || missing=1; done
[ -n "$missing" ] || {{ echo "already installed"; exit 0; }}
as_root=
if [ "$(id -u)" -ne 0 ]; then
  sudo -n true >/dev/null 2>&1 || exit {NO_SUDO}
  as_root="sudo -n{keep} env"
else
  as_root=env
fi
get() {{
  $as_root DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout={lock} -o Dpkg::Use-Pty=0 -o Acquire::Retries=2 "$@" </dev/null
}}
install() {{ get install --no-install-recommends -- {packages}; }}
if [ -n "$(find /var/lib/apt/lists -name '*Packages*' 2>/dev/null | head -n 1)" ]; then
  install && exit 0
fi
get update && install
"#
    )
}

/// Installs packages of Python into a virtual environment, made first where it is missing. One at a
/// time: the lock lies in our folder, as others may write in the one around the environment.
pub(super) fn pip(packages: &[String], venv: &str) -> String {
    let hash: String = sha256(venv).iter().take(8).map(|b| format!("{b:02x}")).collect();
    let (venv, packages, locks) = (path(venv), words(packages), path(LOCKS));
    format!(
        r#"venv={venv} locks={locks}
command -v python3 >/dev/null 2>&1 || exit {NO_PYTHON}
mkdir -p -- "$(dirname -- "$venv")" "$locks" || exit
if command -v flock >/dev/null 2>&1; then exec 9>>"$locks/venv-{hash}" && flock -w 600 9; fi
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  python3 -m venv -- "$venv" || exit {NO_VENV}
fi
exec "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off -- {packages} </dev/null 9>&-
"#
    )
}

/// Ends where the working folder is one that another user has made, where all may.
const OWNED: &str = r#"owner=$(ls -ldn . | tr -s ' ' | cut -d ' ' -f 3)
if [ ! -O . ] && [ "$owner" != 0 ] && [ "$(ls -ldn .. | cut -c 9)" = w ]; then
  echo "$PWD belongs to user $owner, in a folder that all may write to"
  exit 1
fi
"#;

/// Moves a file that lies in the run's folder to its place: whole or not at all. Others may write in
/// the folder around it (`/tmp`), so it is made in one of its own there, under a name that cannot be
/// known before: no other user can make the file first, or put another in its place.
pub(super) fn place_file(staged: &str, to: &str, mode: u32) -> String {
    let body = r#"set -e
mkdir -p -- "$(dirname -- "$2")"
cd -P -- "$(dirname -- "$2")"
OWNED
umask 077
own=$(mktemp -d "$(dirname -- "$2")/.planaria.XXXXXXXXXX")
cd -P -- "$own"
case $(ls -ldn .) in drwx--[-S]---*) [ -O . ] ;; *) false ;; esac || {
  echo "$own is not the folder that was made"
  exit 1
}
trap 'rm -f file; cd / && rmdir -- "$own"' EXIT
cp -- "$1" file
chmod "$3" file
if mv -fT -- file "$2" 2>/dev/null; then exit; fi
if [ -d "$2" ]; then echo "$2 is a folder"; exit 1; fi
mv -f -- file "$2"
"#;
    place(staged, to, &format!("{mode:04o}"), &body.replacen("OWNED\n", OWNED, 1))
}

/// Unpacks an archive that lies in the run's folder to its place. A folder that another user has made
/// first, where all may, is not written into.
pub(super) fn place_folder(staged: &str, to: &str) -> String {
    let body = r#"set -e
mkdir -p -- "$2"
cd -P -- "$2"
OWNED
tar -xpof "$1"
"#;
    let rest = place(staged, to, "", &body.replacen("OWNED\n", OWNED, 1));
    format!("command -v tar >/dev/null 2>&1 || exit {NO_TAR}\n{rest}")
}

/// As the user, or as root where the user may not and `sudo` can.
fn place(staged: &str, to: &str, mode: &str, body: &str) -> String {
    let (staged, to, body) = (quoted(staged), path(to), quoted(body));
    format!(
        r#"staged=$PWD/{staged} to={to} mode='{mode}' body={body}
case $to in /*) ;; *) to=$PWD/$to ;; esac
at=$to
while [ ! -e "$at" ] && [ "$at" != / ] && [ "$at" != . ]; do at=$(dirname -- "$at") || exit; done
[ -d "$at" ] || at=$(dirname -- "$at") || exit
as_root=
if [ ! -w "$at" ] && [ "$(id -u)" -ne 0 ]; then
  sudo -n true >/dev/null 2>&1 || {{ echo "$at is not writable"; rm -f -- "$staged"; exit {NO_SUDO}; }}
  as_root="sudo -n"
fi
$as_root sh -c "$body" sh "$staged" "$to" "$mode"
code=$?
rm -f -- "$staged"
exit $code
"#
    )
}

fn words(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_codes_are_explained() {
        for code in [NO_SUDO, NO_APT, NO_PYTHON, NO_VENV, NO_TAR] {
            assert!(meaning(code, "node1").unwrap().0.contains("node1"));
        }
        assert_eq!(meaning(1, "node1"), None);
    }
}
