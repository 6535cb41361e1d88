//! The tables of a recipe, opened and cut into parts.
//!
//! Parts are cut as those of every other source: by the seed and the number of rows, or from files of
//! their own.

use super::{Encoder, Table};
use crate::budget::Memory;
use crate::error::Error;
use crate::facts::Mark;
use crate::files;
use crate::part::{Cut, Ids};
use planaria_recipe::sections::{Data, Format, Part};
use planaria_recipe::table as recipe;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The opened tables of a recipe.
#[derive(Debug, Clone)]
pub struct TableSet {
    /// To learn from.
    pub train: Rows,
    /// To judge each epoch by.
    pub validation: Option<Rows>,
    /// To judge the result by.
    pub test: Option<Rows>,
    /// By which the files are known again.
    pub marks: Vec<Mark>,
    section: recipe::Table,
}

/// Rows of a table that are used together. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Rows {
    pub(super) table: Arc<Table>,
    pub(super) ids: Ids,
}

impl Rows {
    /// All rows of a table, in its order.
    pub fn whole(table: Arc<Table>) -> Self {
        let ids = Ids::whole(table.len());
        Self { table, ids }
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The rows at some places of these, such as one block to be encoded alone.
    pub fn slice(&self, places: Range<u64>) -> Self {
        Self { table: self.table.clone(), ids: self.ids.slice(places) }
    }

    /// Which rows of the table these are.
    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    /// Where they are.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }
}

impl TableSet {
    /// Learns the encoding from the training rows.
    pub fn learn(&self) -> Result<Encoder, Error> {
        Encoder::learn(&self.train, &self.section).map_err(|e| e.at("data.table"))
    }
}

/// Whether a recipe's data is a table.
pub fn is_table(data: &Data) -> bool {
    matches!(data.format, Format::Csv | Format::Libsvm)
        || (data.format == Format::Auto
            && (data.table.is_some() || named_libsvm(Path::new(&data.train))))
}

/// Reads the tables of a recipe.
pub fn open(data: &Data, seed: u64) -> Result<TableSet, Error> {
    open_within(data, seed, &Memory::of_process())
}

/// The same, with this budget.
pub fn open_within(data: &Data, seed: u64, memory: &Memory) -> Result<TableSet, Error> {
    let section = data.table.clone().unwrap_or_default();
    let read = |text: &str, key: &'static str| {
        let path = Path::new(text);
        files::check(path).map_err(|e| e.at(key))?;
        if !files::exists(path) {
            return Err(crate::sources::absent(path).at(key));
        }
        let table = Table::open_within(path, data.format, &section, memory);
        table.map(Arc::new).map_err(|e| e.at(key))
    };
    let table = read(&data.train, "data.train")?;
    let share = |part: &Option<Part>| match part {
        Some(Part::Share(share)) => Some(*share),
        _ => None,
    };
    let limit = data.examples.map(|n| n as u64);
    let cut = Cut::new(table.len(), limit, share(&data.validation), share(&data.test))
        .map_err(|e| e.at("data"))?;
    let mut marks = vec![mark(&table)];
    let mut own = |part: &Option<Part>, key: &'static str| match part {
        Some(Part::Path(text)) => {
            if files::is_same(Path::new(text), Path::new(&data.train)) {
                let message = "it names the same file as `data.train`";
                return Err(Error::setting(message).at(key));
            }
            let table = read(text, key)?;
            let mark = mark(&table);
            if !marks.contains(&mark) {
                marks.push(mark);
            }
            Ok(Some(Rows::whole(table)))
        }
        _ => Ok(None),
    };
    let own_validation = own(&data.validation, "data.validation")?;
    let own_test = own(&data.test, "data.test")?;
    let (train, validation, test) = cut.ids(seed);
    let rows = |ids: Ids| Rows { table: table.clone(), ids };
    Ok(TableSet {
        train: rows(train),
        validation: validation.map(rows).or(own_validation),
        test: test.map(rows).or(own_test),
        marks,
        section,
    })
}

/// Whether a file's name says that it is of LIBSVM's format.
pub(super) fn named_libsvm(path: &Path) -> bool {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let name = files::unpacked_name(name);
    [".libsvm", ".svm", ".svmlight"].iter().any(|ending| name.ends_with(ending))
}

fn mark(table: &Table) -> Mark {
    Mark {
        name: table.path.display().to_string(),
        content: format!("{:032x}", table.file.mark.unwrap_or(0)),
    }
}
