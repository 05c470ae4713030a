//! Kubernetes quantities, compared by amount: the server may write one differently than a manifest does.

/// A quantity in billionths; none when the text is no quantity, or finer or larger than can be told.
#[must_use]
pub fn nanos(text: &str) -> Option<i128> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mantissa: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let scaled = mantissa.checked_mul(unit(suffix)?)?;
    let amount = (scaled % scale == 0).then(|| scaled / scale)?;
    Some(if text.starts_with('-') {
        -amount
    } else {
        amount
    })
}

/// What a suffix multiplies by, in billionths.
fn unit(suffix: &str) -> Option<i128> {
    const ONE: i128 = 1_000_000_000;
    let ten = |exponent: u32| 10_i128.checked_pow(exponent);
    match suffix {
        "n" => Some(1),
        "u" => ten(3),
        "m" => ten(6),
        "" => Some(ONE),
        "k" => ten(12),
        "M" => ten(15),
        "G" => ten(18),
        "T" => ten(21),
        "P" => ten(24),
        "E" => ten(27),
        "Ki" => Some(ONE << 10),
        "Mi" => Some(ONE << 20),
        "Gi" => Some(ONE << 30),
        "Ti" => Some(ONE << 40),
        "Pi" => Some(ONE << 50),
        "Ei" => Some(ONE << 60),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            ten(u32::try_from(exponent.checked_add(9)?).ok()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_amounts() {
        for (a, b) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1Ki", "1024"),
            ("1.5Gi", "1536Mi"),
            ("2e3", "2k"),
            ("1E3", "1000"),
            ("1e-3", "1m"),
            ("-1", "-1000m"),
            ("+1", "1"),
            ("1E", "1000P"),
        ] {
            assert!(nanos(a).is_some(), "{a}");
            assert_eq!(nanos(a), nanos(b), "{a} {b}");
        }
        assert_ne!(nanos("1M"), nanos("1Mi"));
    }

    #[test]
    fn not_a_quantity() {
        for text in [
            "",
            "m",
            "-",
            ".",
            "1 Gi",
            "1.2.3",
            "one",
            "1Zi",
            "0x1",
            "1e",
            "1e99",
            "0.0000000001",
        ] {
            assert_eq!(nanos(text), None, "{text}");
        }
    }
}
