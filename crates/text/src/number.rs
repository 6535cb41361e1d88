//! Numbers as people read them. Pure text; never rounds what machines read.

/// `12,345`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(c);
    }
    text
}

/// `1 epoch`, `1,200 steps`.
pub fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// `12/1,200`; `12` where it is not known how many there will be.
pub fn out_of(done: u64, all: u64) -> String {
    match all {
        0 => grouped(done),
        all => format!("{}/{}", grouped(done), grouped(all)),
    }
}

/// `1 process`, `4 processes`.
pub fn counted_as(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(n), if n == 1 { one } else { many })
}

/// `0:42`, `1:02:03`.
pub fn clock(seconds: f64) -> String {
    let s = seconds.clamp(0.0, 1e9).round() as u64;
    if s < 3600 {
        format!("{}:{:02}", s / 60, s % 60)
    } else {
        format!("{}:{:02}:{:02}", s / 3600, s % 3600 / 60, s % 60)
    }
}

/// `0.123 s`, `12.3 s`, `4:05 min`, `1:02:03 h`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{s:.3} s"),
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 3600.0 => format!("{} min", clock(s)),
        s => format!("{} h", clock(s)),
    }
}

/// `97.13%`.
pub fn percent(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// `12.3 MB`, in powers of ten.
pub fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            return if unit == "B" { format!("{n} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

/// `0.1234`, always as long; powers of ten for a loss that has run away.
pub fn loss(value: f64) -> String {
    if value.abs() < 1e5 { format!("{value:.4}") } else { format!("{value:.2e}") }
}

/// Four significant digits, without a tail of zeros; powers of ten for the very small and large.
pub fn short(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        return "0".into();
    }
    if !(1e-4..1e7).contains(&size) {
        let text = format!("{value:.2e}");
        let (digits, power) = text.split_once('e').expect("written with a power of ten");
        return format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'));
    }
    let decimals = (3 - libm::log10(size).floor() as i32).clamp(0, 7) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// An amount in whatever units a user counts in: `31,204`, `-1,250`, `3.142`.
pub fn amount(value: f64) -> String {
    match value.abs() {
        size if (1000.0..1e15).contains(&size) => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", grouped(size.round() as u64))
        }
        _ => short(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1, 2000].map(|n| counted(n, "step")), ["1 step", "2,000 steps"]);
        assert_eq!([1, 2].map(|n| counted_as(n, "box", "boxes")), ["1 box", "2 boxes"]);
        assert_eq!([0.4, 42.0, 3723.0].map(clock), ["0:00", "0:42", "1:02:03"]);
        assert_eq!([0.01234, 5.04, 245.0].map(duration), ["0.012 s", "5.0 s", "4:05 min"]);
        assert_eq!([999, 1500, 2_340_000_000].map(bytes), ["999 B", "1.5 kB", "2.3 GB"]);
        assert_eq!([out_of(12, 1200), out_of(512, 0)], ["12/1,200", "512"]);
        assert_eq!([0.12341, 5e30].map(loss), ["0.1234", "5.00e30"]);
        let amounts = [0.0, 2.56789, 999.96, 31_204.4, -1250.0, 1e20].map(amount);
        assert_eq!(amounts, ["0", "2.568", "1000", "31,204", "-1,250", "1e20"]);
        assert_eq!(
            [0.0, 0.07, 1.0, 123.456, 0.00001, 12345.6, 2.312585, 1e21, 1.5e30].map(short),
            ["0", "0.07", "1", "123.5", "1e-5", "12346", "2.313", "1e21", "1.5e30"]
        );
    }
}
