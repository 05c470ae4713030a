//! Kubernetes quantities (`1.5Gi`, `250m`, `2e3`), exact.

use std::fmt;

/// A quantity, in units of 10⁻⁹, the finest that Kubernetes keeps. Two spellings of one amount are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// Why a text is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// It does not read as a number with an optional suffix.
    Malformed,
    /// It is larger than about 10²⁹.
    OutOfRange,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "is not a quantity",
            Self::OutOfRange => "is too large for a quantity",
        })
    }
}

impl std::error::Error for QuantityError {}

/// Decimal places of the smallest unit.
const SCALE: i64 = 9;

/// What a suffix multiplies by.
enum Factor {
    Ten(i64),
    Two(u32),
}

impl Quantity {
    /// Reads a quantity. What is finer than 10⁻⁹ is rounded away from zero, as Kubernetes does.
    ///
    /// # Errors
    ///
    /// When `text` is no quantity, or too large a one.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let number_end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(QuantityError::Malformed);
        }
        let factor = factor(suffix)?;
        let mantissa = digits(whole, fraction)?;
        let places = i64::try_from(fraction.len()).map_err(|_| QuantityError::OutOfRange)?;
        let amount = match factor {
            Factor::Ten(exponent) => shift(mantissa, exponent + SCALE - places),
            Factor::Two(exponent) => mantissa
                .checked_mul(1_i128 << exponent)
                .ok_or(QuantityError::OutOfRange)
                .and_then(|scaled| shift(scaled, SCALE - places)),
        }?;
        Ok(Quantity(if negative { -amount } else { amount }))
    }

    /// The amount in units of 10⁻⁹.
    #[must_use]
    pub const fn nanos(self) -> i128 {
        self.0
    }
}

fn factor(suffix: &str) -> Result<Factor, QuantityError> {
    Ok(match suffix {
        "n" => Factor::Ten(-9),
        "u" => Factor::Ten(-6),
        "m" => Factor::Ten(-3),
        "" => Factor::Ten(0),
        "k" => Factor::Ten(3),
        "M" => Factor::Ten(6),
        "G" => Factor::Ten(9),
        "T" => Factor::Ten(12),
        "P" => Factor::Ten(15),
        "E" => Factor::Ten(18),
        "Ki" => Factor::Two(10),
        "Mi" => Factor::Two(20),
        "Gi" => Factor::Two(30),
        "Ti" => Factor::Two(40),
        "Pi" => Factor::Two(50),
        "Ei" => Factor::Two(60),
        _ => {
            let exponent = suffix
                .strip_prefix(['e', 'E'])
                .ok_or(QuantityError::Malformed)?;
            let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
                return Err(QuantityError::Malformed);
            }
            let exponent: i32 = exponent.parse().map_err(|_| QuantityError::OutOfRange)?;
            Factor::Ten(i64::from(exponent))
        }
    })
}

fn digits(whole: &str, fraction: &str) -> Result<i128, QuantityError> {
    whole
        .bytes()
        .chain(fraction.bytes())
        .try_fold(0_i128, |sum, digit| {
            sum.checked_mul(10)?.checked_add(i128::from(digit - b'0'))
        })
        .ok_or(QuantityError::OutOfRange)
}

/// `amount × 10^exponent` for an amount that isn't negative, rounded up.
fn shift(amount: i128, exponent: i64) -> Result<i128, QuantityError> {
    if amount == 0 {
        return Ok(0);
    }
    let power = u32::try_from(exponent.unsigned_abs())
        .ok()
        .and_then(|places| 10_i128.checked_pow(places));
    match (power, exponent >= 0) {
        (Some(power), true) => amount.checked_mul(power).ok_or(QuantityError::OutOfRange),
        (None, true) => Err(QuantityError::OutOfRange),
        (Some(power), false) => Ok((amount - 1) / power + 1),
        (None, false) => Ok(1),
    }
}
