//! A recipe for idx or CIFAR-10 files: a small convolutional network.
//!
//! Never reads images; headers and labels tell shapes and counts.

use super::Head;
use super::yaml::{comment, remark, text};
use planaria_control::survey::data_failure;
use planaria_data::sources::{Role, Summary, find};
use planaria_data::{Target, sources::Found};
use planaria_recipe::sections::Format;
use planaria_recipe::shape::Shape;
use planaria_runs::failure::Result;
use planaria_text::number::grouped;
use std::fmt::Write;
use std::path::Path;

/// Smaller images are not convolved.
const SIDE_MIN: usize = 12;

/// The recipe.
pub fn recipe(head: &Head, path: &Path) -> Result<String> {
    let path = path.display().to_string();
    let found = |role| find(&path, Format::Auto, role);
    let train = found(Role::Train).map_err(data_failure)?;
    let facts = train.peek().map_err(data_failure)?;
    // Test files of their own are in the same folder.
    let has_test = found(Role::Test).is_ok_and(|test| test != train);
    let mut out = begin(head, &facts);
    let _ = writeln!(out, "  train: {}", text(&head.train));
    if has_test {
        let _ = writeln!(out, "  test: {:<20} # its own test files", text(&head.train));
    } else {
        out +=
            "  test: 0.1                  # judged once, at the end: the figures of the report\n";
    }
    let format = if matches!(train, Found::Cifar10(_)) { "cifar10" } else { "idx" };
    let _ = writeln!(out, "  validation: 0.1            # judged after each epoch");
    let _ = writeln!(out, "  format: {format}");
    out += &augment(&train);
    Ok(out + &model(&facts) + training(&facts))
}

fn begin(head: &Head, facts: &Summary) -> String {
    let Head { asked, name, file, .. } = head;
    let (asked, file) = (remark(asked), remark(file));
    let (asked, file) = (asked.trim_matches('`'), file.trim_matches('`'));
    let about = format!(
        "Written by `planaria init {asked}` for {} examples of {}; what it chose is for you to change. \
         `planaria plan {file}` shows what it comes to, `planaria train {file}` trains.",
        grouped(facts.len),
        facts.shape
    );
    comment(0, &about) + &format!("name: {name}\nseed: 1\ndata:\n")
}

/// Photographs look the same from either side; digits do not.
fn augment(train: &Found) -> String {
    match train {
        Found::Cifar10(_) => "  augment: {crop_padding: 4, horizontal_flip: true}\n".into(),
        _ => String::new(),
    }
}

fn model(facts: &Summary) -> String {
    let (outputs, what) = match facts.target {
        Target::Class { classes } => (classes, "one for each class"),
        Target::Values { width } => (width, "the numbers that are predicted"),
    };
    let mut out = "model:\n  layers:\n".to_owned();
    let is_large = |height: usize, width: usize| height.min(width) >= SIDE_MIN;
    let is_convolved =
        matches!(facts.shape, Shape::Image { height, width, .. } if is_large(height, width));
    let hidden = if is_convolved {
        out += &conv(16);
        out += &conv(32);
        64
    } else {
        128
    };
    if matches!(facts.shape, Shape::Image { .. }) {
        out += "    - Flatten\n";
    }
    let _ = writeln!(out, "{}", dense(hidden));
    let _ = writeln!(out, "    - {{Dense: {{units: {outputs}}}}}   # {what}");
    out
}

fn conv(filters: usize) -> String {
    format!(
        "    - {{Conv2D: {{filters: {filters}, kernel_size: 3, activation: relu, \
         kernel_initializer: he_normal}}}}\n    - MaxPooling2D\n"
    )
}

fn dense(units: usize) -> String {
    format!("    - {{Dense: {{units: {units}, activation: relu, kernel_initializer: he_normal}}}}")
}

fn training(facts: &Summary) -> &'static str {
    match facts.target {
        Target::Class { .. } => {
            "train:\n  epochs: 10\n  batch: 100\n  optimizer: {sgd: {learning_rate: 0.05, momentum: \
             0.9}}\n  schedule: cosine\n"
        }
        Target::Values { .. } => {
            "train:\n  loss: mse\n  epochs: 10\n  batch: 100\n  optimizer: {adam: {learning_rate: \
             0.001}}\n  schedule: cosine\n"
        }
    }
}
