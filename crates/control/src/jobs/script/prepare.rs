//! All that can be wrong with a job before anything exists for it.
//!
//! Owns the checks of the script and its folder, the secrets and what a recipe leaves to be found
//! out. Creates nothing.

use crate::jobs::script::board;
use crate::jobs::script::python::{self, Checked};
use crate::talk::{Talk, patiently};
use planaria_fleet::files::{Code, Listing, Patterns};
use planaria_fleet::home::at_home;
use planaria_fleet::setup::redact::Secrets;
use planaria_fleet::setup::secrets::{self, Secret};
use planaria_recipe::script::{Framework, Job};
use planaria_recipe::setup::{SecretSource, Step};
use planaria_recipe::{JobSource, script};
use planaria_runs::failure::{Failure, Result};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// A job that can begin.
pub struct Prepared {
    /// With everything found out written into it.
    pub job: Job,
    /// What the script is written for.
    pub framework: Framework,
    /// The script, relative to the code's folder.
    pub script: String,
    /// What goes to machines.
    pub code: Code,
    /// Variables of the script alone.
    pub env: Vec<(String, Secret)>,
    /// What is not shown.
    pub secrets: Secrets,
    /// Steps of the set-up, with one for the data.
    pub setup: Vec<Step>,
    /// Where the data is on machines: a path of theirs, or a name in our folder for data.
    pub data: Option<String>,
    /// What comes back.
    pub outputs: Patterns,
    /// The program that shows TensorBoard's files, if that is wished.
    pub tensorboard: Option<PathBuf>,
    /// What people are to be told before it begins.
    pub notes: Vec<String>,
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
        let framework = framework(&job, &file, &mut notes).map_err(|refused| match refused {
            Refused::AtItsLine(failure) => failure,
            Refused::Whole(failure) => wrong("script.file", failure),
        })?;
        job.script.framework = Some(framework);
        recheck(source, &job)?;
        let (script, listing) =
            listing(&job, &file).map_err(|failure| wrong("script.code", failure))?;
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
        let secrets = Secrets::new(env.iter().map(|(_, secret)| secret));
        let outputs = outputs(&job).map_err(|failure| wrong("script.outputs", failure))?;
        let tensorboard = match &job.script.tensorboard {
            None => None,
            Some(_) => Some(board::find().map_err(|failure| wrong("script.tensorboard", failure))?),
        };
        let (data, step) = data(&job).map_err(|failure| wrong("script.data", failure))?;
        let setup = job.setup.iter().cloned().chain(step).collect();
        Ok(Self {
            job,
            framework,
            script,
            code,
            env,
            secrets,
            setup,
            data,
            outputs,
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
) -> std::result::Result<Framework, Refused> {
    // Python here stands for the one there; another version may see it differently.
    let own = job.script.python.as_deref().filter(|_| job.pool.is_here());
    let checked = python::check(file, own).map_err(Refused::Whole)?;
    let told = match checked {
        Checked::Script(script) => {
            let told = named(script.framework());
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
            told
        }
        Checked::Mistake(mistake) if mistake.line > 0 => {
            return Err(Refused::AtItsLine(mistake.failure(file)));
        }
        Checked::Mistake(mistake) => return Err(Refused::Whole(mistake.failure(file))),
        Checked::NoPython(python) => {
            let file = file.display();
            notes.push(format!("`{file}` was not looked at: there is no `{python}` here"));
            Framework::Plain
        }
        Checked::Unknown(why) => {
            notes.push(format!("`{}` was not looked at: {why}", file.display()));
            Framework::Plain
        }
    };
    Ok(job.script.framework.unwrap_or(told))
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

/// The rules of a framework that was found out, as if it had been written.
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

/// Where the data is on machines, and the step that brings it there.
fn data(job: &Job) -> Result<(Option<String>, Option<Step>)> {
    let Some(path) = &job.script.data else { return Ok((None, None)) };
    let here = at_home(path).canonicalize().map_err(|e| {
        Failure::user(format!("`{path}` cannot be read: {e}"))
            .hint("it is a file or folder of this machine")
    })?;
    if job.pool.is_here() {
        return Ok((Some(here.display().to_string()), None));
    }
    let name = here.file_name().map_or_else(|| "data".into(), |name| name.to_string_lossy());
    let hash = Sha256::digest(here.as_os_str().as_encoded_bytes());
    let name = format!(
        "{}-{:02x}{:02x}{:02x}",
        planaria_runs::run_dir::plain_name(&name),
        hash[0],
        hash[1],
        hash[2]
    );
    let to = format!("~/.cache/planaria/data/{name}");
    let step = Step { copy: Some(here.display().to_string()), to: Some(to), ..Step::default() };
    Ok((Some(name), Some(step)))
}
