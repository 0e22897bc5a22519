//! What `goodput sim` prints.

use analyse::sim::Simulated;
use fault::Failure;
use report::model::Run;
use report::table::{Column, Table};
use units::{Bytes, Duration, Rate};

/// The result, for people.
pub(crate) fn summary(done: &Simulated) -> Result<(), Failure> {
    let (color, width) = (super::color(), super::width());
    let text = report::terminal::summary(&done.run, &done.findings, color, width);
    super::print_colored(&text)?;
    super::print(&table(&done.run, width))?;
    super::print(&speed(done.packets, done.wall, done.time))?;
    super::print_place("Report", &done.folder.join("report.html"))
}

/// One line for each of several simulations; empty for one.
fn table(run: &Run, width: usize) -> String {
    if run.phases.len() < 2 {
        return String::new();
    }
    let numbers = [12, 8, 10, 8].map(Column::numbers);
    let mut rows = Table::new([Column::words(8)].into_iter().chain(numbers));
    rows.row(["", "goodput", "dropped", "queue max", "timeouts"]);
    for phase in &run.phases {
        let goodput = Rate::from_bits_per_second(phase.goodput_bits_per_second).to_string();
        let Some(model) = &phase.model else { continue };
        let queue = Bytes::new(model.queue_max_bytes).to_string();
        rows.row([
            phase.name.clone(),
            goodput,
            model.dropped_at_queues.to_string(),
            queue,
            model.timeouts.to_string(),
        ]);
    }
    let mut text = rows.lines().join("\n") + "\n";
    if let Some(gaps) = &run.gap_threshold {
        let octets = |gap: Option<u32>| gap.map_or_else(|| "none".to_owned(), |g| g.to_string());
        let even = gaps.balanced_octets.unwrap_or(0.0);
        let line = format!(
            "Gaps in octets: largest with loss {}, smallest without loss {}; by calculation {even:.2}",
            octets(gaps.losing_octets),
            octets(gaps.clean_octets),
        );
        text += &super::wrapped(&line, 2, width);
    }
    text
}

/// How fast virtual time went.
#[allow(clippy::cast_precision_loss, reason = "for people")]
fn speed(packets: u64, wall: std::time::Duration, time: Duration) -> String {
    let wall = wall.as_secs_f64().max(1e-9);
    format!(
        "Simulated {time} and {packets} packets in {wall:.2} s: {:.2} M packets/s\n",
        packets as f64 / wall / 1e6,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::model::{GapThreshold, ModelFacts, Phase};

    #[test]
    fn several_simulations_as_text() {
        let phase = |name: &str, bps, dropped, timeouts| Phase {
            name: name.to_owned(),
            goodput_bits_per_second: bps,
            model: Some(ModelFacts {
                dropped_at_queues: dropped,
                queue_max_bytes: 262_144,
                timeouts,
                ..ModelFacts::default()
            }),
            ..Phase::default()
        };
        let run = Run {
            phases: vec![
                phase("gap=700", 412_000_000, 1_204, 3),
                phase("gap=720", 941_500_000, 0, 0),
            ],
            gap_threshold: Some(GapThreshold {
                losing_octets: Some(718),
                clean_octets: Some(719),
                balanced_octets: Some(718.42),
            }),
            ..Run::default()
        };
        super::super::golden!("sim", |width| {
            let wall = std::time::Duration::from_millis(1_500);
            table(&run, width) + &speed(3_000_000, wall, Duration::from_s(20))
        });
        let one = Run {
            phases: vec![Phase::default()],
            ..Run::default()
        };
        assert_eq!(table(&one, 80), "");
    }
}
