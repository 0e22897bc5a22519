//! A sweep over the hosts of a lab path that send, each with its congestion control and its costs, in
//! the same rounds; and where one's curve overtakes another's.
//!
//! Left out: senders beyond a lab, and the far end as one. What an MTU can be is what the near host's
//! route carries, whoever sends.

use explain::sweep as curve;
use lab::path::HostSpec;
use measure::Direction;
use report::model::{Sweep, SweepCrossing, SweepCurve};

use super::{Axis, Kind, Work, capital, two_digits, whole};
use job::target::Target;

/// The hosts that send in turn, as the path file has them; none where nobody else than usual does.
pub(super) fn of(
    axes: &[Axis],
    target: &Target,
    direction: Direction,
) -> Result<Vec<HostSpec>, String> {
    let Some(axis) = axes.iter().find(|a| a.kind == Kind::Sender) else {
        return Ok(Vec::new());
    };
    let (Target::Lab(path), Direction::Up) = (target, direction) else {
        return Err("--sweep sender: senders are hosts of a lab path, and send up".to_owned());
    };
    let of_name = |name: &String| {
        let host = path.network.hosts.iter().find(|h| h.name == *name);
        let host = host.filter(|h| h.interface.is_none() && h.name != path.far.name);
        host.cloned().ok_or_else(|| {
            format!(
                "--sweep sender: '{name}' is no host of the lab that could send to {}",
                path.far.name
            )
        })
    };
    axis.names.iter().map(of_name).collect()
}

impl Work<'_> {
    /// Who sends at a point, where that is varied.
    pub(super) fn sender(&self, point: usize) -> Option<&HostSpec> {
        let axis = self.axes.iter().position(|a| a.kind == Kind::Sender)?;
        let number = usize::try_from(*self.points[point].settings.get(axis)?).ok()?;
        self.senders.get(number.checked_sub(1)?)
    }
}

/// What a curve is called, where the second axis has names.
pub(super) fn name(axes: &[Axis], second: Option<u64>) -> Option<String> {
    let (other, value) = axes.get(1).zip(second)?;
    (!other.names.is_empty()).then(|| report::setting(&other.record(), value))
}

/// Each sender's curve that overtakes another's.
pub(super) fn crossings(
    axes: &[Axis],
    curves: &[SweepCurve],
    lines: &[Vec<(f64, f64)>],
) -> Vec<SweepCrossing> {
    let [first, second] = axes else {
        return Vec::new();
    };
    if second.kind != Kind::Sender {
        return Vec::new();
    }
    let of_bytes = first.kind.of_bytes();
    let mut found = Vec::new();
    for (fast, above) in curves.iter().zip(lines) {
        for (slow, below) in curves.iter().zip(lines) {
            let names = fast.name.clone().zip(slow.name.clone());
            let same =
                below.len() == above.len() && below.iter().zip(above).all(|(b, a)| b.0 == a.0);
            let at = curve::overtakes(below, above).filter(|_| same).map(whole);
            if let (Some((name, overtakes)), Some(at)) = (names, at) {
                found.push(SweepCrossing {
                    name,
                    overtakes,
                    at,
                    at_bytes: Some(at).filter(|_| of_bytes),
                });
            }
        }
    }
    found
}

/// The crossings in words, a sentence each.
pub(super) fn met(sweep: &Sweep) -> String {
    let Some(axis) = sweep.axes.first() else {
        return String::new();
    };
    let sentence = |c: &SweepCrossing| {
        let at = report::setting(axis, whole(two_digits(c.at as f64)));
        format!(" {} overtakes {} at {at}.", capital(&c.name), c.overtakes)
    };
    sweep.crossings.iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use lab::PathFile;

    use super::super::sentence;
    use super::super::tests::finished;
    use super::*;

    #[test]
    fn senders_are_hosts_of_the_lab_other_than_the_far_one() {
        let text =
            "title = \"x\"\n[hosts.near]\n[hosts.far]\n[links.l]\nbetween = [\"near\", \"far\"]\n";
        let path = PathFile::parse(std::path::Path::new("x.toml"), text).unwrap();
        let target = Target::Lab(Box::new(path));
        let named = |typed: &str, target: &Target, direction| {
            let axes = [Axis::parse(typed).unwrap()];
            of(&axes, target, direction).map(|hosts| hosts.len())
        };
        assert_eq!(named("sender=near", &target, Direction::Up), Ok(1));
        assert_eq!(named("streams=1,2", &target, Direction::Down), Ok(0));
        let host = Target::Host("example.org".to_owned());
        for (typed, target, direction, says) in [
            ("sender=far", &target, Direction::Up, "'far' is no host"),
            (
                "sender=near,nera",
                &target,
                Direction::Up,
                "'nera' is no host",
            ),
            ("sender=near", &target, Direction::Down, "send up"),
            ("sender=near", &host, Direction::Up, "hosts of a lab path"),
        ] {
            let said = named(typed, target, direction).unwrap_err();
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn one_sender_overtakes_another_by_name() {
        let axes = ["write-size=1KiB..16KiB", "sender=slow,fast"].map(|t| Axis::parse(t).unwrap());
        let slow: &[f64] = &[30.0, 40.0, 50.0, 50.0, 50.0];
        let sweep = finished(&axes, &[slow, &[10.0, 20.0, 40.0, 60.0, 90.0]]);
        let [crossing] = sweep.crossings.as_slice() else {
            panic!("{:?}", sweep.crossings)
        };
        let names = (crossing.name.as_str(), crossing.overtakes.as_str());
        assert_eq!(names, ("fast", "slow"));
        assert!((4096..8192).contains(&crossing.at_bytes.unwrap()));
        let names: Vec<_> = sweep.curves.iter().map(|c| c.name.as_deref()).collect();
        assert_eq!(names, [Some("slow"), Some("fast")]);
        assert!(
            sentence(&sweep).contains("Fast overtakes slow at "),
            "{}",
            sentence(&sweep)
        );
        let streams = ["write-size=1KiB..16KiB", "streams=1,2"].map(|t| Axis::parse(t).unwrap());
        let sweep = finished(&streams, &[slow, &[10.0, 20.0, 40.0, 60.0, 90.0]]);
        assert!(sweep.crossings.is_empty() && sweep.curves[0].name.is_none());
    }
}
