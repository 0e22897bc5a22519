//! Limits by time of day, while a copy runs.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use crate::engine::Watch;
use crate::schedule::Schedule;
use units::Rate;

use super::Request;
use fault::Failure;

/// How often a file with limits is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// The longest file with limits, in bytes.
const FILE_MOST: u64 = 1 << 20;

/// What a copy may send, by the time of day.
pub(super) struct Limits {
    schedule: Option<Schedule>,
    /// Read again when it has changed.
    file: Option<(PathBuf, Option<SystemTime>)>,
    looked: Option<Instant>,
    /// Of a clock elsewhere, in minutes from UTC; this host's where none is said.
    clock: Option<i32>,
    /// What holds, and was told.
    now: Option<Option<Rate>>,
}

/// How far this host's clock on the wall is from UTC now, in minutes.
pub(super) fn clock_minutes() -> i32 {
    jiff::Zoned::now().offset().seconds() / 60
}

impl Limits {
    /// No limits.
    pub(super) fn none() -> Self {
        Self {
            schedule: None,
            file: None,
            looked: None,
            clock: None,
            now: None,
        }
    }

    /// What was typed.
    pub(super) fn of(request: &Request) -> Result<Self, Failure> {
        let mut limits = Self::none();
        limits.schedule.clone_from(&request.limit);
        if let Some(file) = &request.limit_from {
            let failed =
                |error: String| Failure::usage(format!("--limit-from {}: {error}", file.display()));
            let (schedule, changed) = read(file).map_err(failed)?;
            limits.schedule = Some(schedule);
            limits.file = Some((file.clone(), changed));
        }
        Ok(limits)
    }

    /// What another host's user typed, whose clock is so many minutes from UTC.
    ///
    /// # Errors
    /// Words for that user, where it is none.
    pub(super) fn told(text: Option<&str>, clock_minutes: i32) -> Result<Self, String> {
        let schedule = text.map(str::parse::<Schedule>).transpose();
        Ok(Self {
            schedule: schedule.map_err(|error| error.to_string())?,
            clock: Some(clock_minutes.clamp(-24 * 60, 24 * 60)),
            ..Self::none()
        })
    }

    /// For another host.
    pub(super) fn text(&self) -> Option<String> {
        self.schedule.as_ref().map(Schedule::to_string)
    }

    /// Has what holds now hold; what changed, for the user.
    pub(super) fn tick(&mut self, watch: &Watch) -> Option<String> {
        let mut said = self.look();
        let schedule = self.schedule.as_ref()?;
        let limit = schedule.at(self.minute());
        if self.now != Some(limit) {
            watch.set_limit(limit);
            if self.now.is_some() && said.is_none() {
                said = Some(match limit {
                    Some(rate) => format!("from now on at most {rate}"),
                    None => "from now on without limit".to_owned(),
                });
            }
            self.now = Some(limit);
        }
        said
    }

    /// What holds at this time of the day.
    pub(super) fn now(&self) -> Option<Rate> {
        self.schedule.as_ref()?.at(self.minute())
    }

    /// Reads the file again, if it has changed.
    fn look(&mut self) -> Option<String> {
        let (file, before) = self.file.as_mut()?;
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return None;
        }
        self.looked = Some(Instant::now());
        let changed = std::fs::metadata(&*file).and_then(|stat| stat.modified());
        let changed = changed.ok()?;
        if *before == Some(changed) {
            return None;
        }
        *before = Some(changed);
        match read(file) {
            Ok((schedule, _)) => {
                let text = format!("limits are now {schedule}");
                self.schedule = Some(schedule);
                Some(text)
            }
            Err(error) => Some(format!(
                "{}: {error}; limits stay as they were",
                file.display()
            )),
        }
    }

    /// The minute of the day on the user's wall.
    fn minute(&self) -> u16 {
        let minutes = match self.clock {
            None => {
                let now = jiff::Zoned::now();
                i64::from(now.hour()) * 60 + i64::from(now.minute())
            }
            Some(clock) => jiff::Timestamp::now().as_second().div_euclid(60) + i64::from(clock),
        };
        u16::try_from(minutes.rem_euclid(24 * 60)).unwrap_or(0)
    }
}

fn read(file: &std::path::Path) -> Result<(Schedule, Option<SystemTime>), String> {
    use std::io::Read as _;
    let open = std::fs::File::open(file).map_err(|error| error.to_string())?;
    let changed = open.metadata().and_then(|stat| stat.modified()).ok();
    let mut text = String::new();
    let read = open.take(FILE_MOST).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    let schedule = text.parse().map_err(|error| format!("{error}"))?;
    Ok((schedule, changed))
}
