//! What watching costs: looks once a second for as many seconds as the first argument says, as `goodput watch` does in a pipe, and
//! prints CPU time, memory and what was seen as JSON. `cargo xtask bench watch` runs it beside ss.

use std::time::Duration;

use serde_json::json;
use sys::clock;
use watch::names::Names;
use watch::row::View;
use watch::{Options, Session, text};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(10);
    let record = arguments.next().map(Into::into);
    let options = Options {
        processes: true,
        record,
        ..Options::default()
    };
    let mut session = Session::open(&options).expect("no socket diagnosis here");
    session.tick().expect("a dump");
    session.find_owners(usize::MAX).expect("processes");
    let first = clock::process_cpu();
    let begun = clock::monotonic();
    for second in 1..=seconds {
        let due = begun + units::Duration::from_s(second);
        while clock::monotonic() < due {
            let left = due.saturating_since(clock::monotonic()).as_ns();
            std::thread::sleep(Duration::from_nanos(left).min(Duration::from_millis(200)));
            session.drain().expect("closings");
        }
        session.tick().expect("a dump");
        let lines = text::lines(&session, &View::default(), &Names::default(), 150, 20);
        std::hint::black_box((text::summary(&session, 150), lines));
    }
    let wall = clock::monotonic().saturating_since(begun).as_ns();
    let cpu = (clock::process_cpu() - first).as_ns();
    let memory = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = memory.lines().find_map(|l| {
        l.strip_prefix("VmHWM:")?
            .trim()
            .strip_suffix(" kB")?
            .trim()
            .parse::<u64>()
            .ok()
    });
    let total = session.table().total();
    let figures = json!({
        "first_look_cpu_ms": first.as_ns() / 1_000_000,
        "cpu_share": cpu as f64 / wall as f64,
        "memory_kb": memory,
        "connections": session.table().connections().count(),
        "with_process": session.table().connections().filter(|c| c.process.is_some()).count(),
        "open": total.open,
        "closed": total.closed,
        "counts": session.table().counts(),
    });
    println!("{figures}");
}
