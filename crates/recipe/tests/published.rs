//! The committed examples stay true to the code.

use planaria_recipe::{DataFacts, Shape, Source};
use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_example_is_sound_and_plans() {
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("examples")).expect("the examples folder") {
        let path = entry.expect("a readable folder").path();
        if path.extension().is_none_or(|e| e != "yaml") {
            continue;
        }
        seen += 1;
        let source = Source::load(&path, &[]).unwrap_or_else(|d| panic!("{d}"));
        let (side, channels) =
            if source.recipe().data.train.contains("cifar") { (32, 3) } else { (28, 1) };
        let image = Shape::Image { height: side, width: side, channels };
        let facts = match source.recipe().data.table {
            None => DataFacts { input: image, classes: Some(10), examples: 1000 },
            Some(_) => DataFacts { input: Shape::Vector(219), classes: Some(2), examples: 1000 },
        };
        source.plan(&facts).unwrap_or_else(|d| panic!("{d}"));
    }
    assert!(seen >= 4, "{seen} examples");
}
