//! The nearest known word to a mistyped one.

/// Words of other systems and what they are called here.
const SYNONYMS: &[(&str, &str)] = &[
    ("lr", "learning_rate"),
    ("batch_size", "batch"),
    ("gradient_clip", "clip_norm"),
    ("linear", "Dense"),
    ("fullyconnected", "Dense"),
    ("fc", "Dense"),
    ("batchnorm2d", "BatchNormalization"),
    ("batchnorm", "BatchNormalization"),
    ("layernorm", "LayerNormalization"),
    ("avgpool2d", "AveragePooling2D"),
    ("maxpool2d", "MaxPooling2D"),
    ("gap", "GlobalAveragePooling2D"),
    ("crossentropy", "cross_entropy"),
    ("categorical_crossentropy", "cross_entropy"),
    ("sparse_categorical_crossentropy", "cross_entropy"),
    ("bce", "binary_cross_entropy"),
    ("dataset", "data"),
    ("network", "model"),
    ("training", "train"),
    ("out_channels", "filters"),
    ("stride", "strides"),
    ("none", "linear"),
];

/// Losses of other systems that there is no counterpart of, some of them a letter away from one that
/// means something else.
const ABSENT_LOSSES: &[&str] = &[
    "mae",
    "l1",
    "l1loss",
    "absolute",
    "meanabsoluteerror",
    "absoluteerror",
    "huber",
    "huberloss",
    "smoothl1",
    "logcosh",
    "quantile",
    "mape",
    "msle",
    "poisson",
    "kldivergence",
    "kldiv",
];

/// Of a value that is known elsewhere and has no counterpart here: that there is none, and what there
/// is. The nearest word would be another thing.
pub(crate) fn absent(key: &str, word: &str, known: &[&str]) -> Option<String> {
    let is_absent = key == "loss" && ABSENT_LOSSES.contains(&fold(word).as_str());
    is_absent.then(|| {
        let is_known_figure = fold(word) == "mae" || fold(word).starts_with("meanabs");
        let figure = match is_known_figure {
            true => "; reports have the mean absolute error of every run that learns numbers",
            false => "",
        };
        format!("there is no such loss; the losses are {}{figure}", list(known))
    })
}

/// The known word that was probably meant.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    if word.chars().count() > 64 {
        return None;
    }
    let folded = fold(word);
    if let Some(same) = known.iter().find(|k| fold(k) == folded) {
        return Some(same);
    }
    let lower = word.to_lowercase();
    let meant = SYNONYMS.iter().find(|(w, _)| *w == lower).map(|(_, k)| *k);
    if let Some(synonym) = known.iter().find(|k| Some(**k) == meant) {
        return Some(synonym);
    }
    let best = known.iter().min_by_key(|k| distance(&folded, &fold(k)))?;
    let allowed = (folded.len().max(best.len()) / 3).max(1);
    // Of two letters either one makes another word.
    if folded.len() > 2 && distance(&folded, &fold(best)) <= allowed {
        return Some(best);
    }
    let part = |k: &&&str| {
        let k = fold(k);
        k.len() >= 4 && folded.len() >= 4 && (k.contains(&folded) || folded.contains(&k))
    };
    known.iter().find(part).copied()
}

/// "did you mean …?", or what there is to choose from.
pub(crate) fn hint(word: &str, known: &[&str], what: &str) -> Option<String> {
    match nearest(word, known) {
        Some(found) => Some(format!("did you mean `{found}`?")),
        None if known.is_empty() => None,
        None => Some(format!("{what}: {}", list(known))),
    }
}

/// Words in backticks, with commas.
pub(crate) fn list(words: &[&str]) -> String {
    words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", ")
}

fn fold(word: &str) -> String {
    word.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

/// Edits (insert, delete, replace, swap of neighbours) between two words.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn finds_what_was_meant() {
        let keys = ["epochs", "batch", "learning_rate", "optimizer", "Dense", "MaxPooling2D"];
        for (word, expect) in [
            ("optimiser", Some("optimizer")),
            ("epoch", Some("epochs")),
            ("epcohs", Some("epochs")),
            ("lr", Some("learning_rate")),
            ("learning-rate", Some("learning_rate")),
            ("batch_size", Some("batch")),
            ("dense", Some("Dense")),
            ("MaxPool2D", Some("MaxPooling2D")),
            ("zebra", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &keys), expect, "{word}");
        }
    }
}
