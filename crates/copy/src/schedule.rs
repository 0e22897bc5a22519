//! How fast a copy may be at which time of day: `100Mb/s@08:00-18:00,1Gb/s` is 100 Mb/s from eight to six, and 1 Gb/s
//! otherwise.
//!
//! Pure: the time of day is an argument. A day has 1,440 minutes here; where clocks are put forward or back, an hour is
//! left out or comes twice, as it does on the wall.

use std::fmt;
use std::str::FromStr;

use units::Rate;

/// Minutes of a day.
const DAY: u16 = 24 * 60;
/// The most entries.
const ENTRIES_MOST: usize = 1_000;

/// What holds between two minutes of the day.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// None for no limit.
    rate: Option<Rate>,
    /// From the first minute up to the second, over midnight where that is not later; none for always.
    span: Option<(u16, u16)>,
}

/// Limits by time of day; the first entry that fits decides, and where none does there is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    entries: Vec<Entry>,
}

/// Why a text is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}': expected a rate such as 100Mb/s, RATE@HH:MM-HH:MM or none@HH:MM-HH:MM, with commas between them"
)]
pub struct ScheduleError(String);

impl Schedule {
    /// The limit at a minute of the day, 0..1440.
    pub fn at(&self, minute: u16) -> Option<Rate> {
        let fits = |entry: &&Entry| match entry.span {
            None => true,
            Some((from, to)) if from < to => (from..to).contains(&minute),
            Some((from, to)) => minute >= from || minute < to,
        };
        self.entries.iter().find(fits).and_then(|entry| entry.rate)
    }

    /// Whether it is the same all day.
    pub fn is_constant(&self) -> bool {
        self.entries
            .first()
            .is_none_or(|first| first.span.is_none())
    }
}

impl FromStr for Schedule {
    type Err = ScheduleError;

    /// Entries with commas or line ends between them; what follows a `#` is a comment.
    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let lines = text
            .lines()
            .map(|line| line.split_once('#').map_or(line, |(said, _)| said));
        let mut entries = Vec::new();
        for said in lines.flat_map(|line| line.split(',')).map(str::trim) {
            if said.is_empty() {
                continue;
            }
            let entry = entry(said).filter(|_| entries.len() < ENTRIES_MOST);
            entries.push(entry.ok_or_else(|| ScheduleError(said.chars().take(80).collect()))?);
        }
        match entries.is_empty() {
            true => Err(ScheduleError(String::new())),
            false => Ok(Self { entries }),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, Entry { rate, span }) in self.entries.iter().enumerate() {
            if n > 0 {
                f.write_str(",")?;
            }
            match rate {
                Some(rate) => write!(f, "{}b/s", rate.as_bits_per_second())?,
                None => f.write_str("none")?,
            }
            if let Some((from, to)) = span {
                let (from, to) = ((from / 60, from % 60), (to / 60, to % 60));
                write!(f, "@{:02}:{:02}-{:02}:{:02}", from.0, from.1, to.0, to.1)?;
            }
        }
        Ok(())
    }
}

fn entry(said: &str) -> Option<Entry> {
    let (rate, span) = match said.split_once('@') {
        None => (said, None),
        Some((rate, span)) => {
            let (from, to) = span.split_once('-')?;
            (rate, Some((minute(from)?, minute(to)?)))
        }
    };
    let rate = match rate.trim() {
        "none" => None,
        rate => Some(rate.parse::<Rate>().ok()?),
    };
    let is_possible = rate.is_none_or(|rate| rate.as_bits_per_second() >= 8)
        && span.is_none_or(|(from, to)| from != to && from < DAY);
    is_possible.then_some(Entry { rate, span })
}

/// `HH:MM`, up to 24:00.
fn minute(said: &str) -> Option<u16> {
    let (hours, minutes) = said.trim().split_once(':')?;
    let is_two = |digits: &str| digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_two(hours) || !is_two(minutes) {
        return None;
    }
    let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
    let all = hours * 60 + minutes;
    (minutes < 60 && all <= DAY).then_some(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(schedule: &str, time: &str) -> Option<u64> {
        let schedule: Schedule = schedule.parse().unwrap();
        let rate = schedule.at(minute(time).unwrap());
        rate.map(Rate::as_bits_per_second)
    }

    #[test]
    fn the_first_that_fits_decides() {
        let office = "100Mb/s@08:00-18:00,1Gb/s@18:00-22:00";
        for (time, mbps) in [
            ("00:00", None),
            ("07:59", None),
            ("08:00", Some(100)),
            ("17:59", Some(100)),
            ("18:00", Some(1_000)),
            ("22:00", None),
        ] {
            assert_eq!(at(office, time), mbps.map(|n: u64| n * 1_000_000), "{time}");
        }
        assert_eq!(at("5Mb/s", "03:00"), Some(5_000_000));
        assert_eq!(at("none@12:00-13:00, 5Mb/s", "12:30"), None);
        assert_eq!(at("none@12:00-13:00, 5Mb/s", "13:00"), Some(5_000_000));
    }

    #[test]
    fn a_night_goes_over_midnight() {
        let night = "none@22:00-06:00,10Mb/s";
        for (time, limit) in [
            ("21:59", Some(10_000_000)),
            ("22:00", None),
            ("23:59", None),
            ("00:00", None),
            ("05:59", None),
            ("06:00", Some(10_000_000)),
        ] {
            assert_eq!(at(night, time), limit, "{time}");
        }
        assert_eq!(at("1Mb/s@20:00-24:00", "23:59"), Some(1_000_000));
        assert_eq!(at("1Mb/s@20:00-24:00", "00:00"), None);
    }

    #[test]
    fn a_file_may_have_lines_and_comments() {
        let text = "# office\n100Mb/s@08:00-18:00\n\nnone   # at night\n";
        let schedule: Schedule = text.parse().unwrap();
        assert_eq!(schedule.to_string(), "100000000b/s@08:00-18:00,none");
        assert!(!schedule.is_constant());
        assert!("5Mb/s".parse::<Schedule>().unwrap().is_constant());
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "#",
            "fast",
            "5Mb/s@",
            "5Mb/s@8:00-9:00",
            "5Mb/s@08:00",
            "5Mb/s@08:00-08:00",
            "5Mb/s@24:00-08:00",
            "5Mb/s@08:60-09:00",
            "5Mb/s@08:00-24:01",
            "0@08:00-09:00",
        ] {
            assert!(text.parse::<Schedule>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_schedule_that_reads_again_or_an_error(text in "[0-9a-z@:,#/ \n-]{0,60}") {
            if let Ok(schedule) = text.parse::<Schedule>() {
                let again: Schedule = schedule.to_string().parse().unwrap();
                prop_assert_eq!(&again, &schedule);
            }
        }
    }
}
