//! Conversion between times and text.

/// Nanoseconds per second.
const SECOND_NS: u64 = 1_000_000_000;

/// Formats nanoseconds since the start of the recording as seconds with nine decimals, and the
/// unit.
pub(super) fn seconds(time_ns: u64) -> String {
    format!("{}.{:09} s", time_ns / SECOND_NS, time_ns % SECOND_NS)
}

/// Returns the date and the time of day of nanoseconds since 1970, in UTC.
pub(crate) fn date(unix_ns: u64) -> String {
    let (seconds, fraction) = (unix_ns / SECOND_NS, unix_ns % SECOND_NS);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{fraction:09} UTC")
}

/// Converts days since 1970 to year, month and day of the Gregorian calendar. Years start in March,
/// so that the leap day is the last one, and 400 years have 146097 days.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leaps = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leaps) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}

/// Parses `1.5s`, `20ms`, `300us` or `7ns` to nanoseconds; `None` if it is not a time.
pub(super) fn duration_ns(text: &str) -> Option<u64> {
    let units = [("ns", 1), ("us", 1000), ("ms", 1_000_000), ("s", SECOND_NS)];
    let (number, unit_ns) =
        units.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, *ns)))?;
    decimal(number, unit_ns)
}

/// Returns a decimal number times `unit`, rounded down; `None` if it is malformed or too large, or
/// has more than 18 decimals.
pub(super) fn decimal(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 18 {
        return None;
    }
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let fraction: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let value = whole.parse::<u128>().ok()?.checked_mul(scale)?.checked_add(fraction)?;
    u64::try_from(value.checked_mul(u128::from(unit))? / scale).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_days() {
        assert_eq!(date(0), "1970-01-01 00:00:00.000000000 UTC");
        assert_eq!(date(951_782_400 * SECOND_NS), "2000-02-29 00:00:00.000000000 UTC");
        assert_eq!(date(1_767_225_599 * SECOND_NS + 7), "2025-12-31 23:59:59.000000007 UTC");
        assert_eq!(date(4_107_542_400 * SECOND_NS), "2100-03-01 00:00:00.000000000 UTC");
    }

    #[test]
    fn durations_in_all_units() {
        let times = ["1.5s", "20ms", "300us", "7ns", "0.0000000015s"];
        let expected = [1_500_000_000, 20_000_000, 300_000, 7, 1];
        assert_eq!(times.map(|time| duration_ns(time).unwrap()), expected);
        for none in ["", "s", "5", "-5s", "1e3s", "1.5.5s", "99999999999999999999999s", "%"] {
            assert_eq!(duration_ns(none), None, "{none}");
        }
    }
}
