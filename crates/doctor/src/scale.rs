//! A lab's path at a rate that this machine carries.

use fault::Failure;
use job::target::Target;
use lab::PathFile;
use measure::{Approach, Config, Stop};
use units::{Duration, Rate};

use crate::session::Site;

/// How far a lab's path is scaled down: rates and queues, not times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// As far as this machine needs now, by a transfer of a second.
    Auto,
    /// To one in so many, at least 1.
    By(u32),
}

impl std::str::FromStr for Scale {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        match typed {
            "auto" => Ok(Self::Auto),
            _ => match typed.parse() {
                Ok(by) if by > 0 => Ok(Self::By(by)),
                _ => Err("auto, or a whole number: rates and queues are divided by it".to_owned()),
            },
        }
    }
}

/// A target with its path scaled, and a sentence for whoever waits where it was.
pub(crate) fn scaled(
    target: Target,
    scale: Scale,
    stop: &Stop,
) -> Result<(Target, Option<String>), Failure> {
    let Target::Lab(path) = target else {
        return Err(Failure::usage(
            "--scale is a lab's: a far host's path is as it is",
        ));
    };
    let (by, why) = match scale {
        Scale::By(by) => (by, String::new()),
        Scale::Auto => {
            let Some(asked) = fastest(&path) else {
                return Ok((Target::Lab(path), None));
            };
            let carried = carried(&path, asked, stop)?;
            let why = format!("; a lab carries {carried} here now, and the path asks for {asked}");
            (divisor(asked, carried), why)
        }
    };
    if by == 1 {
        return Ok((Target::Lab(path), None));
    }
    let small = path.scaled(by).map_err(|problem| {
        Failure::usage(format!(
            "{} cannot be scaled: {problem}",
            path.file.display()
        ))
    })?;
    let said = format!("rates and queues are divided by {by}, round trips stay{why}");
    Ok((Target::Lab(Box::new(small)), Some(said)))
}

/// The highest rate of any link on the way.
fn fastest(path: &PathFile) -> Option<Rate> {
    path.forward.rate.max(path.backward.rate)
}

/// 1 where the machine carries all but what headers take; else the smallest that leaves it half idle: a machine that was too slow for
/// a second is late long before it is full.
fn divisor(asked: Rate, carried: Rate) -> u32 {
    let (asked, carried) = (
        u128::from(asked.as_bits_per_second()),
        u128::from(carried.as_bits_per_second()),
    );
    if carried * 100 >= asked * CARRIES_PERCENT {
        return 1;
    }
    let by = asked.div_ceil((carried / 2).max(1));
    u32::try_from(by).unwrap_or(u32::MAX).max(1)
}

/// What a lab of one link of that rate carries on this machine now, over TCP in packets of the path's size. With the rate, since
/// frames that each leave at their time cost more than those that leave as they came.
fn carried(path: &PathFile, asked: Rate, stop: &Stop) -> Result<Rate, Failure> {
    let mtu = path.mtu_bytes();
    let offloads = path.near.offloads && path.far.offloads;
    let hosts: String = ["near", "far"]
        .iter()
        .map(|name| format!("[hosts.{name}]\nmtu = {mtu}\noffloads = {offloads}\n"))
        .collect();
    let text = format!(
        "title = \"what this machine carries\"\n{hosts}[links.all]\nbetween = [\"near\", \"far\"]\ndelay = \"1ms\"\nrate = \"{}b/s\"\nqueue = \"4MB\"\n",
        asked.as_bits_per_second()
    );
    let probe = PathFile::parse("this-machine.toml".as_ref(), &text)?;
    let approach = Approach::default();
    let site = Site::open(Target::Lab(Box::new(probe)), &approach)?;
    let config = Config {
        duration: Duration::from_ms(1_200),
        ramp: Duration::from_ms(200),
        ..Config::default()
    };
    let outcome = site.with_client(stop, |mut client| client.run(&config, stop, &mut |_| {}))?;
    Ok(outcome.goodput_after_ramp())
}

/// 94 % of the rate is payload at MTU 1500.
const CARRIES_PERCENT: u128 = 92;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_divisor_leaves_half_and_is_one_where_the_machine_carries_the_path() {
        let by = |asked: u64, carried: u64| {
            let rate = |mb| Rate::from_bits_per_second(mb * 1_000_000);
            divisor(rate(asked), rate(carried))
        };
        assert_eq!((by(1_000, 920), by(1_000, 919)), (1, 3));
        assert_eq!((by(10_000, 5_000), by(10_000, 4_999)), (4, 5));
        assert_eq!(by(0, 0), 1);
    }

    #[test]
    fn a_scale_is_auto_or_a_number_of_1_or_more() {
        assert_eq!("auto".parse(), Ok(Scale::Auto));
        assert_eq!("4".parse(), Ok(Scale::By(4)));
        for wrong in ["0", "-1", "1.5", "", "Auto"] {
            assert!(wrong.parse::<Scale>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_far_host_has_no_scale() {
        let far = Target::Host("far".to_owned());
        let refused = scaled(far, Scale::By(2), &Stop::new()).unwrap_err();
        assert!(
            refused.to_string().contains("--scale is a lab's"),
            "{refused}"
        );
    }
}
