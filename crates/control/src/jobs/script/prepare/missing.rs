//! Files that a script or its arguments name and that do not go to machines: reported before it
//! begins, because it would fail there.
//!
//! A text counts where there is such a file or folder here, seen from the folder that the script is
//! started in. What the script makes itself is no loss.

use super::DataSet;
use planaria_fleet::files::{Listing, Patterns};
use planaria_fleet::home::at_home;
use planaria_recipe::script::Job;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Notes at most.
const NOTES_MAX: usize = 8;

/// What is said of such files.
pub(super) fn notes(
    job: &Job,
    listing: &Listing,
    workdir: &str,
    texts: &[String],
    outputs: &Patterns,
    data: &[DataSet],
) -> Vec<String> {
    let arguments = job.script.arguments();
    let named = arguments.iter().map(|text| text.split_once('=').map_or(&**text, |(_, v)| v));
    let all: BTreeSet<&str> = texts.iter().map(String::as_str).chain(named).collect();
    let runs = at_home(&job.output.dir).canonicalize().ok();
    let is_known = |path: &Path| {
        data.iter().any(|data| path.starts_with(&data.here))
            || runs.as_ref().is_some_and(|runs| path.starts_with(runs))
    };
    let folder = listing.root.join(workdir);
    let notes = all.into_iter().filter_map(|text| {
        let path = existing(&folder, text).filter(|path| !is_known(path))?;
        if is_sent_as(listing, workdir, text) {
            return None;
        }
        let why = match path.strip_prefix(&listing.root).ok() {
            Some(inside) => {
                let inside = inside.to_str()?;
                let is_sent =
                    inside.is_empty() || listing.holds(inside) || listing.has_folder(inside);
                let is_made = outputs.matches(inside) || outputs.are_in(inside);
                if is_sent || is_made {
                    return None;
                }
                "`.gitignore` or `.planariaignore` leaves it out"
            }
            None => "it is outside of the code's folder",
        };
        Some(format!(
            "`{text}`, which the script names, is here but does not go to machines: {why}; \
             `script.data` brings it there, `script.code` names another folder"
        ))
    });
    notes.take(NOTES_MAX).collect()
}

/// Whether something goes to machines by the name that a text has for it, though it may lie elsewhere
/// here: links are followed.
fn is_sent_as(listing: &Listing, workdir: &str, text: &str) -> bool {
    let mut parts: Vec<&str> = Vec::new();
    for part in Path::new(workdir).components().chain(Path::new(text).components()) {
        match part {
            Component::Normal(name) => parts.extend(name.to_str()),
            Component::ParentDir if parts.pop().is_none() => return false,
            _ => {}
        }
    }
    let named = parts.join("/");
    listing.sends(&named) || listing.has_folder(&named)
}

/// The file or folder that a text names, seen from a folder, if there is one.
fn existing(folder: &Path, text: &str) -> Option<PathBuf> {
    let mut parts = Path::new(text).components();
    let is_relative = parts.clone().all(|part| {
        matches!(part, Component::Normal(_) | Component::ParentDir | Component::CurDir)
    });
    let names_something = parts.any(|part| matches!(part, Component::Normal(_)));
    if !is_relative || !names_something || text.contains('\0') {
        return None;
    }
    folder.join(text).canonicalize().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::script::layout::tests::job;
    use std::fs;

    #[test]
    fn files_that_stay_here_are_told_of() {
        let place = tempfile::tempdir().unwrap();
        for path in ["src/train.py", "src/sent/x", "src/ignored/x", "data/x", "src/made/1.pt"] {
            let file = place.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "x").unwrap();
        }
        fs::write(place.path().join("src/.gitignore"), "ignored\nmade\n").unwrap();
        let listing = Listing::read(&place.path().join("src"), &[]).unwrap();
        let outputs = Patterns::new(&["made/*.pt"]).unwrap();
        let job = job("script: {file: train.py, args: ['--data=../data', '{{rank}}']}");
        let texts = ["sent", "sent/x", "ignored", "made", "none", "..", "/etc", "train.py", "x y"];
        let texts = texts.map(str::to_owned);
        let told = notes(&job, &listing, "", &texts, &outputs, &[]);
        assert_eq!(told.len(), 2, "{told:#?}");
        assert!(told[0].starts_with("`../data`") && told[0].contains("outside"), "{told:#?}");
        assert!(told[1].starts_with("`ignored`") && told[1].contains(".gitignore"), "{told:#?}");
        let here = place.path().join("data").canonicalize().unwrap();
        let data = DataSet { field: "data".into(), here, place: "d".into(), step: None };
        assert_eq!(
            notes(&job, &listing, "", &[], &outputs, &[data]),
            [""; 0],
            "it is brought there"
        );
    }

    #[test]
    fn what_is_behind_a_link_goes_too() {
        let place = tempfile::tempdir().unwrap();
        for path in ["src/train.py", "src/sent/x", "src/ignored/x", "data/sub/x", "one.csv"] {
            let file = place.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "x").unwrap();
        }
        fs::write(place.path().join("src/.gitignore"), "ignored\n").unwrap();
        let links =
            [("../data", "data"), ("../one.csv", "one.csv"), ("sent", "now"), ("ignored", "not")];
        for (to, link) in links {
            std::os::unix::fs::symlink(to, place.path().join("src").join(link)).unwrap();
        }
        let listing = Listing::read(&place.path().join("src"), &[]).unwrap();
        let outputs = Patterns::new(&["*.pt"]).unwrap();
        let job = job("script: {file: train.py}");
        let texts = ["data", "data/sub", "./data/sub/x", "one.csv", "now", "now/x", "not/x"];
        let told = notes(&job, &listing, "", &texts.map(str::to_owned), &outputs, &[]);
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(told[0].starts_with("`not/x`"), "{told:#?}");
    }
}
