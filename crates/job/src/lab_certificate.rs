//! A lab's certificate as it is written to files of its own.

use lab::protocol::Counts;
use lab::{Certificate, DirectionCounts};
use serde_json::{Value, json};

/// A certificate as it is written to files.
///
/// ```no_run
/// let path = lab::PathFile::read("my-path.toml".as_ref())?;
/// let lab = lab::Lab::up(&path)?;
/// let certificate = lab.begin_phase()?.finish()?;
/// println!("{:#}", job::certificate_json(&certificate));
/// # Ok::<(), fault::Failure>(())
/// ```
pub fn certificate_json(c: &Certificate) -> Value {
    let counts = |d: &DirectionCounts| serde_json::to_value(Counts::from(d)).unwrap_or(Value::Null);
    json!({
        "trusted": c.trusted(),
        "problems": c.problems,
        "goodput_error_ppm": c.error.goodput_ppm,
        "round_trip_error_ppm": c.error.round_trip_ppm,
        "error_simulated": c.error.simulated,
        "lapses": c.lapses,
        "probes": c.probes,
        "probes_lost": c.probes_lost,
        "delay_error_p50_ns": c.delay_error_p50_ns,
        "delay_error_p99_ns": c.delay_error_p99_ns,
        "delay_error_p999_ns": c.delay_error_p999_ns,
        "delay_error_max_ns": c.delay_error_max_ns,
        "frames": c.frames(),
        "frames_late": c.frames_late(),
        "frames_together": c.frames_together(),
        "frames_lost_by_lab": c.frames_lost_by_lab(),
        "forward": counts(&c.forward),
        "backward": counts(&c.backward),
        "cpu_forwarder_ns": c.cpu.as_ns(),
        "memory_bytes": c.memory_bytes,
        "kernel": c.kernel.as_ref().map(crate::record::kernel_run),
    })
}
