//! How a run ended, and how good its final weights are.

use planaria_learn::Scores;
use planaria_learn::scores::ClassScores;
use planaria_numerics::regression::Errors;
pub use planaria_protocol::message::Outcome;
use planaria_text::number::{amount, short};

/// Figures of the second of two classes, which is the positive one.
pub fn positive(scores: &Scores, classes: &[String]) -> Option<ClassScores> {
    let per_class = scores.per_class(classes);
    <[ClassScores; 2]>::try_from(per_class).ok().map(|[_, positive]| positive)
}

/// `RMSE 31,204, R² 0.81`.
pub fn errors_brief(errors: &Errors) -> String {
    let r2 = errors.r2.map_or_else(String::new, |r2| format!(", R² {}", short(r2)));
    format!("RMSE {}{r2}", amount(errors.rmse))
}

/// `RMSE 31,204, MAE 22,019, R² 0.81`.
pub fn errors_text(errors: &Errors) -> String {
    let r2 = errors.r2.map_or_else(String::new, |r2| format!(", R² {}", short(r2)));
    format!("RMSE {}, MAE {}{r2}", amount(errors.rmse), amount(errors.mae))
}

/// What to try where predictions say no more than the labels' mean; nothing where they do.
pub fn against_the_mean(errors: &Errors) -> Option<String> {
    errors.is_no_better_than_the_mean().then(|| {
        let r2 = errors.r2.map_or_else(String::new, short);
        format!(
            "no better than always predicting the mean (R² {r2}): try a lower `learning_rate`, more \
             `epochs`, columns that say more about the label, and `standardize: true` for them"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_well() {
        let errors = Errors { rmse: 31_204.4, mae: 22.019, r2: Some(0.81234) };
        assert_eq!(errors_brief(&errors), "RMSE 31,204, R² 0.8123");
        assert_eq!(errors_text(&errors), "RMSE 31,204, MAE 22.02, R² 0.8123");
        assert_eq!(against_the_mean(&errors), None);
        let unknown = Errors { r2: None, ..errors };
        assert_eq!(errors_text(&unknown), "RMSE 31,204, MAE 22.02");
        let poor = against_the_mean(&Errors { r2: Some(-0.25), ..errors }).unwrap();
        assert!(poor.starts_with("no better than always predicting the mean (R² -0.25): try"));
    }
}
