//! All that can be wrong with a job before anything exists for it.
//!
//! Owns the checks of the script and its folder, the secrets and what a recipe leaves to be found
//! out. Creates nothing.
//!
//! # Layout
//! - `missing`: files that the script names and that do not go to machines

mod missing;

use crate::jobs::script::board;
use crate::jobs::script::python::{self, Checked, Script};
use crate::talk::{Talk, patiently};
use planaria_fleet::files::{Code, Listing, Patterns};
use planaria_fleet::home::at_home;
use planaria_fleet::redact::Secrets;
use planaria_fleet::setup::secrets::{self, Secret};
use planaria_recipe::script::{Framework, Job};
use planaria_recipe::setup::{SecretSource, Step};
use planaria_recipe::{JobSource, script};
use planaria_runs::failure::{Failure, Result};
use planaria_store::hash::sha256;
use planaria_text::figures::Metrics;
use std::path::{Path, PathBuf};

/// A job that can begin.
pub struct Prepared {
    /// With everything that was detected written into it.
    pub job: Job,
    /// What the script is written for.
    pub framework: Framework,
    /// The script, relative to the folder that it is started in.
    pub script: String,
    /// That folder, relative to the code's; empty where it is that.
    pub workdir: String,
    /// Whether it imports `mpi4py`.
    pub has_mpi4py: bool,
    /// What goes to machines.
    pub code: Code,
    /// Variables of the script alone.
    pub env: Vec<(String, Secret)>,
    /// What is not shown.
    pub secrets: Secrets,
    /// Steps of the set-up, with one for the data.
    pub setup: Vec<Step>,
    /// Data that machines have.
    pub data: Vec<DataSet>,
    /// What comes back.
    pub outputs: Patterns,
    /// What figures look like, as the user says.
    pub metrics: Metrics,
    /// The program that shows TensorBoard's files, if that is wished.
    pub tensorboard: Option<PathBuf>,
    /// What people are to be told before it begins.
    pub notes: Vec<String>,
}

/// Data whose place the script gets.
#[derive(Debug, Clone, PartialEq)]
pub struct DataSet {
    /// The field of arguments that is its place.
    pub field: String,
    /// Where it is here, without links.
    pub here: PathBuf,
    /// Where it is on machines: a path of theirs, or a name in our folder for data.
    pub place: String,
    /// What brings it there.
    step: Option<Step>,
}

impl Prepared {
    /// Checks a job; a failure names the key of the recipe that is wrong.
    pub fn new(source: &JobSource, talk: Talk) -> Result<Self> {
        let mut job = source.recipe().clone();
        let mut notes = Vec::new();
        let wrong = |key: &str, failure: Failure| {
            let hint = failure.hint.as_deref();
            Failure::from(source.diagnose(key, failure.message.clone(), hint))
        };
        let file = PathBuf::from(&job.script.file);
        let (framework, read) =
            framework(&job, &file, &mut notes).map_err(|refused| match refused {
                Refused::AtItsLine(failure) => failure,
                Refused::Whole(failure) => wrong("script.file", failure),
            })?;
        job.script.framework = Some(framework);
        recheck(source, &job)?;
        let (script, listing) =
            listing(&job, &file).map_err(|failure| wrong("script.code", failure))?;
        let workdir =
            workdir(&job, &listing).map_err(|failure| wrong("script.workdir", failure))?;
        notes.extend(listing.notes.iter().cloned());
        notes.extend(listing.warning());
        let words = format!("looking through `{}`", job.script.code_folder());
        let hashed = patiently(talk, &words, || listing.hash(&mut |_, _| {}));
        let code = hashed.map_err(|e| wrong("script.code", Failure::user(e)))?;
        let resolved = |(name, text)| {
            let secret = secrets::resolve(text);
            let secret = secret.map_err(|fault| {
                let failure = Failure { hint: fault.hint.clone(), ..Failure::user(&fault.what) };
                wrong(&format!("script.env.{name}"), failure)
            });
            Ok((String::clone(name), secret?))
        };
        let env = job.script.env.iter().map(resolved).collect::<Result<Vec<_>>>()?;
        let secrets = Secrets::new(env.iter().filter_map(|(_, secret)| secret.hidden()));
        let outputs = outputs(&job).map_err(|failure| wrong("script.outputs", failure))?;
        let metrics = Metrics::new(&job.script.metrics).map_err(|(name, why)| {
            let message = format!("the expression of `{name}` cannot be used: {why}");
            let hint = "a group such as `cost is ([0-9.]+)` has the number; a bracket that is meant as \
                        it is has a backslash before it";
            wrong(&format!("script.metrics.{name}"), Failure::user(message).hint(hint))
        })?;
        let tensorboard = match &job.script.tensorboard {
            None => None,
            Some(_) => Some(board::find().map_err(|failure| wrong("script.tensorboard", failure))?),
        };
        let data = data(&job).map_err(|(key, failure)| wrong(&key, failure))?;
        let steps = data.iter().filter_map(|data| data.step.clone());
        let setup = job.setup.iter().cloned().chain(steps).collect();
        let texts = read.as_ref().map_or(&[][..], |script| &script.texts);
        notes.extend(missing::notes(&job, &listing, &workdir, texts, &outputs, &data));
        let has_mpi4py = read.is_some_and(|script| script.imports.iter().any(|i| i == "mpi4py"));
        Ok(Self {
            job,
            framework,
            script: from_folder(&workdir, &script),
            workdir,
            has_mpi4py,
            code,
            env,
            secrets,
            setup,
            data,
            outputs,
            metrics,
            tensorboard,
            notes,
        })
    }
}

/// What the script is written for, once Python has read it.
/// Why a script is refused.
enum Refused {
    /// The message names the line.
    AtItsLine(Failure),
    Whole(Failure),
}

fn framework(
    job: &Job,
    file: &Path,
    notes: &mut Vec<String>,
) -> std::result::Result<(Framework, Option<Script>), Refused> {
    // Python here stands for the one there; another version may see it differently.
    let own = job.script.python.as_deref().filter(|_| job.pool.is_here());
    let checked = python::check(file, own).map_err(Refused::Whole)?;
    let keras = job.script.env.get("KERAS_BACKEND").and_then(|text| match text.source() {
        Ok(SecretSource::Here(text)) => Some(text),
        _ => None,
    });
    let (told, script) = match checked {
        Checked::Script(script) => {
            let told = named(script.framework(keras));
            let has_servers = job.script.roles.contains_key(script::PS);
            if script.parameter_servers
                && job.script.framework.unwrap_or(told) == Framework::Tensorflow
                && !has_servers
            {
                let message =
                    "the script uses ParameterServerStrategy, but `script.roles` has no `ps`";
                let hint = "write `roles: {chief: 1, worker: 2, ps: 1}`";
                return Err(Refused::Whole(Failure::user(message).hint(hint)));
            }
            (told, Some(script))
        }
        Checked::Mistake(mistake) if mistake.line > 0 => {
            return Err(Refused::AtItsLine(mistake.failure(file)));
        }
        Checked::Mistake(mistake) => return Err(Refused::Whole(mistake.failure(file))),
        Checked::NoPython(python) => {
            let file = file.display();
            notes.push(format!("`{file}` was not looked at: there is no `{python}` here"));
            (Framework::Plain, None)
        }
        Checked::Unknown(why) => {
            notes.push(format!("`{}` was not looked at: {why}", file.display()));
            (Framework::Plain, None)
        }
    };
    Ok((job.script.framework.unwrap_or(told), script))
}

fn named(word: &str) -> Framework {
    let known = [
        Framework::Tensorflow,
        Framework::Pytorch,
        Framework::Jax,
        Framework::Horovod,
        Framework::Mpi,
    ];
    known.into_iter().find(|framework| framework.as_str() == word).unwrap_or(Framework::Plain)
}

/// Checks the rules of a detected framework, as if the recipe named it.
fn recheck(source: &JobSource, job: &Job) -> Result<()> {
    if source.recipe().script.framework.is_some() {
        return Ok(());
    }
    let framework = job.script.framework.map_or("plain", Framework::as_str);
    source.again(&format!("script.framework={framework}")).map_err(Failure::from)
}

/// The script's name in the code's folder, and what is in that folder.
fn listing(job: &Job, file: &Path) -> Result<(String, Listing)> {
    let folder = job.script.code_folder();
    let mut left_out = vec![PathBuf::from(&job.output.dir)];
    // Files of secrets are for the script's environment alone.
    left_out.extend(job.script.env.values().filter_map(|text| match text.source() {
        Ok(SecretSource::File(path)) => Some(at_home(path)),
        _ => None,
    }));
    // What this command says may go to a file in the folder, which grows as it is read.
    left_out.extend([1, 2].map(|own| PathBuf::from(format!("/proc/self/fd/{own}"))));
    let listing = Listing::read(Path::new(&folder), &left_out).map_err(Failure::user)?;
    let absolute = file.canonicalize().map_err(Failure::user)?;
    let inside = absolute.strip_prefix(&listing.root).ok().and_then(Path::to_str);
    let Some(inside) = inside else {
        let message = format!("`{}` is not in the folder `{folder}`", file.display());
        return Err(Failure::user(message).hint("`code` must hold the script"));
    };
    if !listing.holds(inside) {
        let message = format!("git ignores `{}`, so it would not go to machines", file.display());
        return Err(Failure::user(message).hint("take it out of `.gitignore` or `.planariaignore`"));
    }
    Ok((inside.to_owned(), listing))
}

fn outputs(job: &Job) -> Result<Patterns> {
    let mut patterns = job.script.output_patterns();
    if let Some(folder) = &job.script.tensorboard {
        patterns.push(format!("{}/**", folder.trim_matches('/')));
    }
    Patterns::new(&patterns).map_err(Failure::user)
}

/// The folder that the script is started in, relative to the code's.
fn workdir(job: &Job, listing: &Listing) -> Result<String> {
    let Some(folder) = &job.script.workdir else { return Ok(String::new()) };
    let parts: Vec<&str> = folder.split('/').filter(|part| !["", "."].contains(part)).collect();
    let inside = parts.join("/");
    if !inside.is_empty() && !listing.has_folder(&inside) {
        let code = job.script.code_folder();
        let message = format!("`{folder}` is no folder of `{code}` that goes to machines");
        return Err(Failure::user(message).hint("it is relative to the code's folder"));
    }
    Ok(inside)
}

/// A path of the code's folder as it is written in one of the folders there.
fn from_folder(folder: &str, path: &str) -> String {
    let (mut above, mut rest) = (folder, path);
    // Folders that both are in.
    while let (Some((first, inner)), false) = (rest.split_once('/'), above.is_empty()) {
        let (outer, further) = above.split_once('/').unwrap_or((above, ""));
        if outer != first {
            break;
        }
        (above, rest) = (further, inner);
    }
    let up = if above.is_empty() { 0 } else { above.split('/').count() };
    format!("{}{rest}", "../".repeat(up))
}

/// Data, where it is on machines, and the steps that bring it there; what is wrong with a key's.
fn data(job: &Job) -> std::result::Result<Vec<DataSet>, (String, Failure)> {
    let set = |set: script::DataSet| {
        let here = at_home(&set.path).canonicalize().map_err(|e| {
            let message = format!("`{}` cannot be read: {e}", set.path);
            (set.key, Failure::user(message).hint("it is a file or folder of this machine"))
        })?;
        if job.pool.is_here() {
            let place = here.display().to_string();
            return Ok(DataSet { field: set.field, here, place, step: None });
        }
        let name = here.file_name().map_or_else(|| "data".into(), |name| name.to_string_lossy());
        let hash = sha256(here.as_os_str().as_encoded_bytes());
        let name = planaria_runs::run_dir::plain_name(&name);
        let place = format!("{name}-{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2]);
        let to = Some(format!("~/.cache/planaria/data/{place}"));
        let step = Step { copy: Some(here.display().to_string()), to, ..Step::default() };
        Ok(DataSet { field: set.field, here, place, step: Some(step) })
    };
    job.script.data_sets().into_iter().map(set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_found_from_where_it_is_started() {
        for (folder, path, expect) in [
            ("", "train.py", "train.py"),
            ("", "src/train.py", "src/train.py"),
            ("src", "src/train.py", "train.py"),
            ("exp", "src/train.py", "../src/train.py"),
            ("src/a/b", "src/train.py", "../../train.py"),
            ("src", "src/a/train.py", "a/train.py"),
            ("a", "train.py", "../train.py"),
        ] {
            assert_eq!(from_folder(folder, path), expect, "{path} from `{folder}`");
        }
    }
}
