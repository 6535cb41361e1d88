//! `planaria init`: a first recipe for data that has none.
//!
//! Owns where it is written, and that what was written can be trained: it is checked as `plan` does
//! before. What stands in it is `table`'s and `images`' to choose. Never changes data.

mod images;
mod table;
mod yaml;

use crate::cli;
use crate::commands::print;
use planaria_control::survey::{data_facts, data_failure, finding};
use planaria_control::talk::{Progress, Talk, patiently};
use planaria_data::sources::{Role, find};
use planaria_data::table::profile::Profile;
use planaria_recipe::Source;
use planaria_recipe::sections::Format;
use planaria_runs::failure::{Failure, Result};
use planaria_runs::run_dir::write;
use std::path::{Path, PathBuf};

/// Splits of the data that are tried, so that each class has rows to be learned from.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=8;
/// Fewer rows are all learned from.
const HELD_OUT_FROM: u64 = 30;

/// How a recipe cuts its data.
#[derive(Debug, Clone, Copy)]
struct Cut {
    seed: u64,
    /// Whether rows are held out for validation and test.
    is_held_out: bool,
}

/// What all recipes here begin with.
#[derive(Debug)]
struct Head {
    /// How the data was named on the command line.
    asked: String,
    /// The name of the recipe.
    name: String,
    /// The data as the recipe names it.
    train: String,
    /// Where the recipe will be, for its comments.
    file: String,
}

/// Guesses, checks and writes.
pub fn run(options: &cli::Init, talk: Talk) -> Result<()> {
    let place = Place::of(options)?;
    let head = place.head(options)?;
    let (text, remarks) = match kind(&options.data)? {
        Kind::Images => {
            refuse_label(options)?;
            (images::recipe(&head, &options.data)?, Vec::new())
        }
        Kind::Sparse => {
            refuse_label(options)?;
            (table::sparse(&head, &options.data)?, Vec::new())
        }
        Kind::Table => {
            let name = options.data.display().to_string();
            let look = || Profile::of(&options.data);
            let profile = patiently(talk, &format!("looking at {name}"), look);
            let profile = profile.map_err(|error| {
                let hint = "`planaria init` takes tables, and folders of idx or CIFAR-10 files";
                let failure = data_failure(error);
                if failure.hint.is_none() { failure.hint(hint) } else { failure }
            })?;
            let guess = table::Guess::new(&profile, &name, options.label.as_deref())?;
            let held_out = profile.rows >= HELD_OUT_FROM;
            let text = match profile.is_whole {
                true => checked(&head, &options.data, &guess, held_out)?,
                // Reading all of it is for `plan`.
                false => guess.recipe(&head, Cut { seed: *SEEDS.start(), is_held_out: true }),
            };
            (text, guess.remarks())
        }
    };
    place.write(&text)?;
    let mut progress = Progress::new(talk);
    remarks.iter().for_each(|remark| progress.note(remark));
    if let Place::File(path) = &place {
        let path = path.display();
        let next = format!("`planaria plan {path}` shows it, `planaria train {path}` trains");
        progress.note(&format!("wrote {path}; {next}"));
    }
    Ok(())
}

/// What data is, as far as recipes differ.
enum Kind {
    Images,
    Sparse,
    Table,
}

fn kind(path: &Path) -> Result<Kind> {
    let text = path.to_str().ok_or_else(|| Failure::user("the data's path is not UTF-8"))?;
    let name = text.strip_suffix(".gz").or_else(|| text.strip_suffix(".xz")).unwrap_or(text);
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    if path.is_file() && ends(&[".libsvm", ".svm", ".svmlight"]) {
        return Ok(Kind::Sparse);
    }
    if path.is_file() && ends(&[".csv", ".tsv"]) {
        return Ok(Kind::Table);
    }
    match find(text, Format::Auto, Role::Train) {
        Ok(_) => Ok(Kind::Images),
        // What is no format of images may be a table under any name.
        Err(_) if path.is_file() => Ok(Kind::Table),
        Err(error) => Err(data_failure(error)),
    }
}

fn refuse_label(options: &cli::Init) -> Result<()> {
    match &options.label {
        None => Ok(()),
        Some(label) => Err(Failure::user(format!(
            "`--label {label}`: `{}` is no table with columns",
            options.data.display()
        ))
        .hint("leave it out")),
    }
}

/// A recipe that can be trained with: the first split of which each class has rows to learn from, or
/// none where there is no such split.
fn checked(head: &Head, data: &Path, guess: &table::Guess<'_>, held_out: bool) -> Result<String> {
    let whole = guess.recipe(head, Cut { seed: *SEEDS.start(), is_held_out: false });
    check(&whole, data).map_err(|refused| {
        let said =
            format!("no recipe for `{}` can be trained: {}", data.display(), refused.message);
        Failure::user(said).hint("change the file; or name another column by `--label`")
    })?;
    let mut cuts = SEEDS.filter(|_| held_out).map(|seed| Cut { seed, is_held_out: true });
    let sound = cuts.find_map(|cut| {
        let text = guess.recipe(head, cut);
        check(&text, data).is_ok().then_some(text)
    });
    Ok(sound.unwrap_or(whole))
}

/// Whether a recipe for `data` can be trained with.
fn check(text: &str, data: &Path) -> Result<()> {
    let mut broken = None;
    let planned = Source::parse_and_plan("the recipe", text.as_bytes(), &[], |recipe| {
        let train = data.display().to_string();
        recipe.data.paths_mut().for_each(|path| path.clone_from(&train));
        let opened = planaria_data::open(&recipe.data, recipe.seed);
        finding(opened, recipe, &mut broken).map(|data| data_facts(&data.facts))
    });
    match (planned, broken) {
        (_, Some(failure)) => Err(failure),
        (Err(mistakes), None) => Err(mistakes.into()),
        (Ok(_), None) => Ok(()),
    }
}

/// Where a recipe goes.
enum Place {
    Stdout,
    File(PathBuf),
}

impl Place {
    fn of(options: &cli::Init) -> Result<Self> {
        let path = match &options.output {
            Some(path) if path == Path::new("-") => return Ok(Self::Stdout),
            Some(path) => path.clone(),
            None => options.data.with_file_name(stem(&options.data)? + ".yaml"),
        };
        if let (Ok(there), Ok(data)) = (path.canonicalize(), options.data.canonicalize())
            && there == data
        {
            return Err(Failure::user(format!("`{}` is the data itself", path.display()))
                .hint("name another file for the recipe: `-o FILE`"));
        }
        match path.symlink_metadata() {
            Ok(_) if !options.force => {
                Err(Failure::user(format!("`{}` is there already", path.display())).hint(
                    "`--force` replaces it, `-o FILE` writes another, `-o -` prints the recipe",
                ))
            }
            _ => Ok(Self::File(path)),
        }
    }

    fn head(&self, options: &cli::Init) -> Result<Head> {
        let data = &options.data;
        let file = match self {
            Self::Stdout => "RECIPE".to_owned(),
            Self::File(path) => path.display().to_string(),
        };
        Ok(Head {
            asked: data.display().to_string(),
            name: recipe_name(&stem(data)?),
            train: self.train(data)?,
            file,
        })
    }

    /// The data as a recipe here names it: found again beside it, wherever both are.
    fn train(&self, data: &Path) -> Result<String> {
        let text = |path: &Path| {
            let text = path.to_str().map(str::to_owned);
            text.ok_or_else(|| Failure::user("the data's path is not UTF-8"))
        };
        let whole = |path: &Path| path.canonicalize().ok();
        match self {
            Self::Stdout => text(data),
            Self::File(path) if whole(&folder(path)) == whole(&folder(data)) => {
                text(Path::new(data.file_name().unwrap_or(data.as_os_str())))
            }
            Self::File(_) => text(&std::path::absolute(data).unwrap_or_else(|_| data.into())),
        }
    }

    fn write(&self, text: &str) -> Result<()> {
        match self {
            Self::Stdout => print(text),
            Self::File(path) => write(path, text.as_bytes())
                .map_err(|failure| failure.hint("`-o FILE` writes it elsewhere")),
        }
    }
}

/// The folder that a path is in.
fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// A file's name without its endings, or a folder's name.
fn stem(path: &Path) -> Result<String> {
    let named = match path.file_name() {
        Some(_) => Some(path.to_path_buf()),
        // `.` has a name all the same.
        None => path.canonicalize().ok(),
    };
    let name = named.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    let name = name.ok_or_else(|| {
        Failure::user(format!("`{}` has no name to call a recipe by", path.display()))
            .hint("name a file or a folder, or write the recipe with `-o FILE`")
    })?;
    let name = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".xz")).unwrap_or(name);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    Ok(if stem.is_empty() { "data".into() } else { stem.to_owned() })
}

/// A name that a recipe may have.
fn recipe_name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' };
    let name: String = text.chars().map(plain).take(40).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "data".into() } else { name.to_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_are_named_after_their_data() {
        for (path, expect) in [
            ("data/House prices.csv", "house-prices"),
            ("a.b/mnist", "mnist"),
            ("UCI_Credit_Card.csv.gz", "uci_credit_card"),
            ("ünï.csv", "n"),
            ("...csv", "data"),
        ] {
            assert_eq!(recipe_name(&stem(Path::new(path)).unwrap()), expect, "{path}");
        }
    }
}
