//! Times, shares and processes as a command line says them: `500ms`, `1s..3s`, `5%`, `worker-2`.
//! Pure.

use planaria_protocol::message::Agent;
use std::str::FromStr;
use std::time::Duration;

/// Longest time that makes sense.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// A time, or any between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub least: Duration,
    pub most: Duration,
}

impl Span {
    /// From one to another, in milliseconds.
    pub const fn millis(least: u64, most: u64) -> Self {
        Self { least: Duration::from_millis(least), most: Duration::from_millis(most) }
    }

    /// The time at a share of the way from the shortest to the longest.
    pub fn at(&self, share: f64) -> Duration {
        self.least + self.most.saturating_sub(self.least).mul_f64(share.clamp(0.0, 1.0))
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", word(self.least))?;
        if self.most != self.least {
            write!(f, "..{}", word(self.most))?;
        }
        Ok(())
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        let span = Self { least: time(least)?, most: time(most)? };
        if span.least > span.most {
            return Err(format!("`{text}` ends before it begins"));
        }
        Ok(span)
    }
}

/// A time that is not nothing.
pub fn lasting(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    match span.most < Duration::from_millis(1) {
        true => Err(format!("`{text}` is no time at all: the least is `1ms`")),
        false => Ok(span),
    }
}

/// `500ms`, `1.5s`, `2m`, `1h`.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time such as `500ms`, `2s`, `10m` or `1s..3s`");
    let at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let time = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
    if time > LONGEST { Err(wrong()) } else { Ok(time) }
}

fn word(time: Duration) -> String {
    let millis = time.as_millis();
    match millis {
        n if n >= 60_000 && n % 60_000 == 0 => format!("{}m", n / 60_000),
        n if n >= 1000 && n % 1000 == 0 => format!("{}s", n / 1000),
        n => format!("{n}ms"),
    }
}

/// A share of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Of a thousand.
    pub per_mille: u32,
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a share between 0.1% and 100%");
        let number: f64 = text.strip_suffix('%').and_then(|n| n.parse().ok()).ok_or_else(wrong)?;
        let per_mille = (number * 10.0).round();
        match (1.0..=1000.0).contains(&per_mille) {
            true => Ok(Self { per_mille: per_mille as u32 }),
            false => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}%", f64::from(self.per_mille) / 10.0)
    }
}

/// A process of a run that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target(pub Agent);

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let agent = match text.split_once('-') {
            Some(("worker", n)) => n.parse().ok().map(Agent::Worker),
            Some(("server", n)) => n.parse().ok().map(Agent::Server),
            _ => (text == "coordinator").then_some(Agent::Coordinator),
        };
        // As it is written everywhere else.
        agent.filter(|agent| agent.to_string() == text).map(Self).ok_or_else(|| {
            format!(
                "`{text}` is no process of a run; name one as `worker-2`, `server-0` or \
                 `coordinator`"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_understood() {
        for (text, expect) in [
            ("500ms", Some((500, 500))),
            ("1s..3s", Some((1000, 3000))),
            ("1.5s", Some((1500, 1500))),
            ("2m", Some((120_000, 120_000))),
            ("0s..1h", Some((0, 3_600_000))),
            ("3s..1s", None),
            ("5", None),
            ("", None),
            ("s", None),
            ("-1s", None),
            ("1e300s", None),
            ("nans", None),
            ("1s..", None),
            ("1d", None),
        ] {
            let span = expect.map(|(least, most)| Span::millis(least, most));
            assert_eq!(text.parse::<Span>().ok(), span, "{text}");
        }
        let span: Span = "1s..3s".parse().unwrap();
        assert_eq!([0.0, 0.5, 2.0].map(|x| span.at(x).as_millis()), [1000, 2000, 3000]);
        assert_eq!(
            ["90s", "500ms..2m"].map(|t| t.parse::<Span>().unwrap().to_string()),
            ["90s", "500ms..2m"]
        );
    }

    #[test]
    fn no_time_is_not_a_time() {
        for (text, is_lasting) in
            [("0s", false), ("0ms", false), ("0.1ms", false), ("1ms", true), ("0s..1s", true)]
        {
            assert_eq!(lasting(text).is_ok(), is_lasting, "{text}");
        }
    }

    #[test]
    fn targets_are_understood() {
        for (text, expect) in [
            ("worker-2", Some(Agent::Worker(2))),
            ("server-0", Some(Agent::Server(0))),
            ("coordinator", Some(Agent::Coordinator)),
            ("console", None),
            ("foo", None),
            ("worker", None),
            ("worker-", None),
            ("worker-02", None),
            ("worker-+2", None),
            ("worker--2", None),
            ("coordinator-0", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<Target>().ok(), expect.map(Target), "{text}");
        }
    }

    #[test]
    fn shares_are_understood() {
        for (text, expect) in [
            ("5%", Some(50)),
            ("100%", Some(1000)),
            ("0.1%", Some(1)),
            ("0%", None),
            ("101%", None),
            ("5", None),
            ("x%", None),
        ] {
            assert_eq!(text.parse::<Share>().ok().map(|s| s.per_mille), expect, "{text}");
        }
        assert_eq!("2.5%".parse::<Share>().unwrap().to_string(), "2.5%");
    }
}
