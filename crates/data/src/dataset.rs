//! The `data` section made real: its parts opened, or looked at without reading them.

use crate::budget::Memory;
use crate::error::Error;
pub use crate::facts::{Facts, Mark};
use crate::files;
use crate::part::{Cut, Part};
use crate::source::{DataFile, Source, Target};
use crate::sources::{Found, Role, Summary, absent, digits, find};
use crate::table;
use planaria_numerics::regression::TargetScale;
use planaria_recipe::sections::{self, DIGITS, Data, Format};
use std::path::Path;
use std::sync::Arc;

/// Where the held-out digits start when they are drawn on their own: far from the training ones.
const DIGITS_VALIDATION: u64 = 1 << 40;
const DIGITS_TEST: u64 = 1 << 41;
/// How many are drawn then.
const DIGITS_HELD_OUT: u64 = 10_000;

/// The opened data of a recipe.
#[derive(Debug, Clone)]
pub struct DataSet {
    /// To learn from.
    pub train: Part,
    /// To judge each epoch by.
    pub validation: Option<Part>,
    /// To judge the result by.
    pub test: Option<Part>,
    /// What all of it has in common.
    pub facts: Facts,
    /// By which it is known again; the seed and counts are the recipe's.
    pub marks: Vec<Mark>,
    /// How a table's rows became examples, where they come from one.
    pub encoder: Option<Arc<table::Encoder>>,
    /// Whether examples are features that something made of the data's own.
    pub is_extracted: bool,
}

impl DataSet {
    fn of_tables(encoded: table::vectors::Encoded) -> Self {
        let table::vectors::Encoded { train, validation, test, facts, marks, encoder } = encoded;
        let encoder = Some(Arc::new(encoder));
        Self { train, validation, test, facts, marks, encoder, is_extracted: false }
    }
}

impl DataSet {
    /// Names of the classes in the order of their numbers; none where targets are numbers. Classes
    /// that a format has no names for are called by their numbers.
    pub fn class_names(&self) -> Vec<String> {
        let named = self.encoder.as_ref().and_then(|encoder| encoder.classes());
        match named {
            Some(names) => names.to_vec(),
            None => (0..self.facts.classes().unwrap_or(0)).map(|n| n.to_string()).collect(),
        }
    }

    /// How a table's numbers to predict are scaled to be learned; nothing for classes.
    pub fn target_scale(&self) -> Option<TargetScale> {
        self.encoder.as_ref().and_then(|encoder| encoder.target_scale())
    }

    /// Names of an example's values: a table's features, or numbers from 0.
    pub fn feature_names(&self) -> Vec<String> {
        match &self.encoder {
            Some(encoder) if !self.is_extracted => {
                encoder.features().into_iter().map(|f| f.name).collect()
            }
            _ => (0..self.facts.input.len()).map(|n| n.to_string()).collect(),
        }
    }
}

/// Opens the data of a recipe: reads it once, and keeps of it what the process has memory for. Files
/// are unpacked side by side.
pub fn open(data: &Data, seed: u64) -> Result<DataSet, Error> {
    open_within(data, seed, &Memory::of_process())
}

/// The same where its facts are as wanted: they are known before inputs are unpacked or encoded,
/// which may take long. Nothing where they are not.
pub fn open_if(
    data: &Data,
    seed: u64,
    is_wanted: impl FnOnce(&Facts) -> bool,
) -> Result<Option<DataSet>, Error> {
    let memory = Memory::of_process();
    if table::is_table(data) {
        let tables = table::vectors::open(data, seed, &memory, is_wanted)?;
        return Ok(tables.map(DataSet::of_tables));
    }
    match is_wanted(&peek(data, seed)?) {
        true => open_within(data, seed, &memory).map(Some),
        false => Ok(None),
    }
}

/// The same, with this budget.
pub fn open_within(data: &Data, seed: u64, memory: &Memory) -> Result<DataSet, Error> {
    if table::is_table(data) {
        let tables = table::vectors::open(data, seed, memory, |_| true)?;
        return Ok(DataSet::of_tables(tables.expect("all are wanted")));
    }
    let plan = Layout::find(data, seed)?;
    let mut sources = open_all(&plan.distinct(), memory)?;
    let summaries =
        sources.iter().map(|(f, s)| (f.clone(), summarise(s.as_ref()))).collect::<Vec<_>>();
    let (cut, facts) = plan.cut(data, |found| Ok(lookup(&summaries, found).clone()))?;
    let own = |found: &Option<(Found, Role)>| {
        found.as_ref().map(|(f, _)| Part::whole(lookup(&sources, f).clone()))
    };
    let marks = sources.iter().flat_map(|(f, s)| marks(f, s.as_ref())).collect();
    let (own_validation, own_test) = (own(&plan.validation), own(&plan.test));
    let source = sources.swap_remove(0).1;
    let (train, validation, test) = cut.apply(source, seed);
    let (validation, test) = (validation.or(own_validation), test.or(own_test));
    Ok(DataSet { train, validation, test, facts, marks, encoder: None, is_extracted: false })
}

/// Looks at the data of a recipe: headers, labels and sizes, never the inputs, except for tables.
pub fn peek(data: &Data, seed: u64) -> Result<Facts, Error> {
    if table::is_table(data) {
        return table::vectors::peek(data, seed);
    }
    Layout::find(data, seed)?.cut(data, Found::peek).map(|(_, facts)| facts)
}

/// Every path of a recipe that leads nowhere, where opening it tells the first alone.
pub fn missing(data: &Data, seed: u64) -> Vec<Error> {
    let path = |part: &Option<sections::Part>| match part {
        Some(sections::Part::Path(text)) => Some(text.clone()),
        _ => None,
    };
    let parts = [
        (Some(data.train.clone()), Role::Train),
        (path(&data.validation), Role::Validation),
        (path(&data.test), Role::Test),
    ];
    let look = |(text, role): (Option<String>, Role)| {
        let text = text?;
        let error = if table::is_table(data) {
            let path = Path::new(&text);
            files::check(path).err().or_else(|| (!files::exists(path)).then(|| absent(path)))
        } else {
            find_one(&text, data.format, role, seed, None).err()
        };
        error.map(|error| error.at(key(role)))
    };
    parts.into_iter().filter_map(look).collect()
}

/// Opens one path (or `digits`) on its own, whole, such as for judging a saved model.
pub fn open_part(text: &str, format: Format, role: Role, seed: u64) -> Result<Part, Error> {
    find_one(text, format, role, seed, None)?.open(&Memory::of_process()).map(Part::whole)
}

/// A source and what it was opened from.
type Opened = (Found, Arc<dyn Source>);

/// Where each part's examples come from. A part that is a share of the training source has no
/// source of its own.
struct Layout {
    train: Found,
    validation: Option<(Found, Role)>,
    test: Option<(Found, Role)>,
}

impl Layout {
    fn find(data: &Data, seed: u64) -> Result<Self, Error> {
        let train = find_one(&data.train, data.format, Role::Train, seed, data.examples)
            .map_err(|e| e.at("data.train"))?;
        let own = |part: &Option<sections::Part>, role: Role| match part {
            Some(sections::Part::Path(text)) => {
                let found = find_one(text, data.format, role, seed, None)
                    .and_then(|f| refuse_same(f, &train))
                    .map_err(|e| e.at(key(role)))?;
                Ok(Some((found, role)))
            }
            _ => Ok(None),
        };
        let validation = own(&data.validation, Role::Validation)?;
        let test = own(&data.test, Role::Test)?;
        Ok(Self { train, validation, test })
    }

    /// Every source once, the training source first.
    fn distinct(&self) -> Vec<(Found, Role)> {
        let mut list = vec![(self.train.clone(), Role::Train)];
        for own in [&self.validation, &self.test].into_iter().flatten() {
            if list.iter().all(|(found, _)| *found != own.0) {
                list.push(own.clone());
            }
        }
        list
    }

    /// Sizes of the parts and what they have in common, or why they do not fit together.
    fn cut(
        &self,
        data: &Data,
        look: impl Fn(&Found) -> Result<Summary, Error>,
    ) -> Result<(Cut, Facts), Error> {
        let share = |part: &Option<sections::Part>| match part {
            Some(sections::Part::Share(s)) => Some(*s),
            _ => None,
        };
        let train = look(&self.train).map_err(|e| e.at("data.train"))?;
        let limit = data.examples.map(|n| n as u64);
        let cut = Cut::new(train.len, limit, share(&data.validation), share(&data.test))
            .map_err(|e| e.at("data"))?;
        let mut facts = Facts {
            input: train.shape,
            target: train.target,
            train: cut.train,
            validation: cut.validation,
            test: cut.test,
            files: train.files,
            numeric_classes: None,
        };
        for (found, role) in [&self.validation, &self.test].into_iter().flatten() {
            let own = look(found).map_err(|e| e.at(key(*role)))?;
            facts.join(own, *role).map_err(|e| e.at(key(*role)))?;
        }
        Ok((cut, facts))
    }
}

impl Facts {
    /// Adds a part that has a source of its own.
    fn join(&mut self, own: Summary, role: Role) -> Result<(), Error> {
        if own.shape != self.input {
            return Err(Error::setting(format!(
                "`{}` holds examples of {}, but `data.train` of {}",
                key(role),
                own.shape,
                self.input
            )));
        }
        self.target = match (self.target, own.target) {
            (Target::Class { classes: a }, Target::Class { classes: b }) => {
                Target::Class { classes: a.max(b) }
            }
            (a, b) if a == b => a,
            (a, b) => {
                return Err(Error::setting(format!(
                    "`{}` has {} as targets, but `data.train` has {}",
                    key(role),
                    words(b),
                    words(a)
                )));
            }
        };
        match role {
            Role::Train => self.train = own.len,
            Role::Validation => self.validation = own.len,
            Role::Test => self.test = own.len,
        }
        self.files
            .extend(own.files.into_iter().filter(|f| !self.files.contains(f)).collect::<Vec<_>>());
        Ok(())
    }
}

fn key(role: Role) -> &'static str {
    match role {
        Role::Train => "data.train",
        Role::Validation => "data.validation",
        Role::Test => "data.test",
    }
}

fn words(target: Target) -> String {
    match target {
        Target::Class { .. } => "classes".into(),
        Target::Values { width: 1 } => "a number".into(),
        Target::Values { width } => format!("{width} numbers"),
    }
}

fn find_one(
    text: &str,
    format: Format,
    role: Role,
    seed: u64,
    examples: Option<usize>,
) -> Result<Found, Error> {
    if text != DIGITS {
        return find(text, format, role);
    }
    Ok(match role {
        Role::Train => Found::Digits(seed, 0, examples.map_or(digits::EXAMPLES, |n| n as u64)),
        Role::Validation => Found::Digits(seed, DIGITS_VALIDATION, DIGITS_HELD_OUT),
        Role::Test => Found::Digits(seed, DIGITS_TEST, DIGITS_HELD_OUT),
    })
}

/// Judging by what was learned tells nothing.
fn refuse_same(found: Found, train: &Found) -> Result<Found, Error> {
    if found == *train {
        return Err(Error::setting("it names the same files as `data.train`"));
    }
    Ok(found)
}

/// Opens each source, all at once.
fn open_all(list: &[(Found, Role)], memory: &Memory) -> Result<Vec<Opened>, Error> {
    let open = |(found, role): &(Found, Role)| {
        let source = found.open(memory).map_err(|e| e.at(key(*role)))?;
        Ok((found.clone(), source))
    };
    let [first, rest @ ..] = list else { return Ok(Vec::new()) };
    std::thread::scope(|scope| {
        let others: Vec<_> = rest.iter().map(|entry| scope.spawn(move || open(entry))).collect();
        let mut opened = vec![open(first)];
        for other in others {
            let broken = || Error::Reader { message: "a thread broke down".into() };
            opened.push(other.join().unwrap_or_else(|_| Err(broken())));
        }
        opened.into_iter().collect()
    })
}

fn summarise(source: &dyn Source) -> Summary {
    Summary {
        len: source.len(),
        shape: source.shape(),
        target: source.target(),
        files: source.files().iter().map(|f| DataFile { mark: None, ..f.clone() }).collect(),
    }
}

fn marks(found: &Found, source: &dyn Source) -> Vec<Mark> {
    if let Found::Digits(..) = found {
        let content = format!("version {}", digits::VERSION);
        return vec![Mark { name: DIGITS.into(), content }];
    }
    let mark = |file: &DataFile| Mark {
        name: file.path.display().to_string(),
        content: format!("{:032x}", file.mark.unwrap_or(0)),
    };
    source.files().iter().map(mark).collect()
}

fn lookup<'a, T>(list: &'a [(Found, T)], found: &Found) -> &'a T {
    let entry = list.iter().find(|(f, _)| f == found);
    &entry.expect("every source of the layout was opened").1
}
