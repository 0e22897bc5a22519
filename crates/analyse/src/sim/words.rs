//! How a simulated sender is to be paced, as people type it.

use units::{Bytes, Rate};

use super::PacingWish;

/// Reads one word, such as `off`, `gap=720`, `gap=600..800/20`, `app=900Mb/s:1MiB` or a rate; a range is each of its gaps.
///
/// # Errors
/// What was expected.
pub fn pacing(typed: &str) -> Result<Vec<PacingWish>, String> {
    let wish = match typed {
        "off" => PacingWish::Off,
        "window" => PacingWish::Window,
        "exact" => PacingWish::Exact,
        "auto" => PacingWish::Auto,
        _ => match typed.split_once('=') {
            Some(("gap", gaps)) => return self::gaps(gaps),
            Some(("app", writes)) => writes_of(writes)?,
            Some(("limit", size)) => {
                let most: Bytes = size.parse().map_err(|e| format!("limit={size}: {e}"))?;
                PacingWish::Limit(most)
            }
            _ => PacingWish::Rate(rate(typed)?),
        },
    };
    Ok(vec![wish])
}

/// `720`, or `600..800/20`.
fn gaps(typed: &str) -> Result<Vec<PacingWish>, String> {
    let octets = |text: &str| -> Result<u32, String> {
        let octets: u32 = text
            .parse()
            .map_err(|_| format!("'{text}' is no number of octets; say gap=720"))?;
        if octets > GAP_MAX {
            return Err(format!("a gap has at most {GAP_MAX} octets"));
        }
        Ok(octets)
    };
    let Some((from, rest)) = typed.split_once("..") else {
        return Ok(vec![PacingWish::Gap(octets(typed)?)]);
    };
    let (to, step) = rest.split_once('/').unwrap_or((rest, "1"));
    let (from, to, step) = (octets(from)?, octets(to)?, octets(step)?);
    if from > to || step == 0 || (to - from) / step >= GAPS_MAX {
        return Err(format!(
            "expected a range such as gap=600..800/20, of at most {GAPS_MAX} gaps"
        ));
    }
    let each = (0..=(to - from) / step).map(|n| PacingWish::Gap(from + n * step));
    Ok(each.collect())
}

/// `9Gb/s:4MiB`.
fn writes_of(typed: &str) -> Result<PacingWish, String> {
    let (mean, block) = typed
        .split_once(':')
        .ok_or("expected rate and size of the writes, such as app=900Mb/s:1MiB")?;
    let block: Bytes = block.parse().map_err(|e| format!("app: {block}: {e}"))?;
    Ok(PacingWish::Application {
        rate: rate(mean)?,
        block,
    })
}

fn rate(typed: &str) -> Result<Rate, String> {
    let rate: Rate = typed.parse().map_err(|e| {
        format!("{e}; or off, auto, window, exact, gap=OCTETS, app=RATE:SIZE, limit=SIZE")
    })?;
    if rate.as_bits_per_second() < 8 {
        return Err("a rate is above zero".to_owned());
    }
    Ok(rate)
}

const GAP_MAX: u32 = 1 << 20;
const GAPS_MAX: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(typed: &str) -> Vec<String> {
        let wishes = pacing(typed).unwrap();
        wishes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn words_are_ways_to_pace_and_ranges_are_many() {
        assert_eq!(read("off"), ["off"]);
        assert_eq!(read("auto"), ["auto"]);
        assert_eq!(read("gap=720"), ["gap 720"]);
        assert_eq!(read("gap=700..720/10"), ["gap 700", "gap 710", "gap 720"]);
        assert_eq!(read("gap=706..707"), ["gap 706", "gap 707"]);
        assert_eq!(read("app=9Gb/s:1MiB"), ["writes of 1 MiB at 9 Gb/s"]);
        assert_eq!(read("limit=114MB"), ["limit 114 MB"]);
        assert_eq!(read("900Mb/s"), ["900 Mb/s"]);
        for wrong in [
            "gap=",
            "gap=9..1",
            "gap=1..2/0",
            "app=1Gb/s",
            "limit=x",
            "fast",
        ] {
            assert!(pacing(wrong).is_err(), "{wrong}");
        }
    }
}
