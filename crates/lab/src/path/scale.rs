//! The same path at a part of its rate, for a machine that does not carry all of it.

use link::spec::{DirectionSpec, DisciplineSpec, PolicerSpec, ServerSpec};
use link::{Change, QueueLimits};
use units::{Bytes, Rate};

use super::{Network, PathFile};

impl PathFile {
    /// The same path with every rate, queue, burst and packet budget divided by `by`; delays, losses, MTUs and the hosts'
    /// settings stay. So its round trip is the same, and its queues hold the same time. `scaled_by` says so.
    ///
    /// # Errors
    /// In one line, when `by` is 0, or something on the path has no rate that could be divided: a trace, a medium that both ends
    /// share, a harmonizer.
    pub fn scaled(&self, by: u32) -> Result<Self, String> {
        if by == 0 {
            return Err("a path is scaled down by 1 or more".to_owned());
        }
        let part = Part { by: by.into() };
        let mut path = Self {
            scaled_by: self.scaled_by.saturating_mul(by),
            ..self.clone()
        };
        part.network(&mut path.network)?;
        for way in [&mut path.forward, &mut path.backward] {
            way.rate = way.rate.map(|rate| part.rate(rate));
            way.queue = part.bytes(way.queue);
            way.queue_packets = way.queue_packets.map(|n| part.packets(n));
        }
        Ok(path)
    }
}

/// A divisor.
#[derive(Clone, Copy)]
struct Part {
    by: u64,
}

impl Part {
    fn rate(self, rate: Rate) -> Rate {
        Rate::from_bits_per_second((rate.as_bits_per_second() / self.by).max(1))
    }

    /// Two full frames at least: less would be another kind of queue.
    fn bytes(self, bytes: Bytes) -> Bytes {
        let bytes = bytes.as_u64();
        Bytes::new((bytes / self.by).max(bytes.min(LEAST_BYTES)))
    }

    fn packets(self, packets: u32) -> u32 {
        let part = u64::from(packets) / self.by;
        u32::try_from(part).unwrap_or(packets).max(packets.min(2))
    }

    fn limits(self, limits: QueueLimits) -> QueueLimits {
        QueueLimits {
            bytes: limits.bytes.map(|b| self.bytes(Bytes::new(b)).as_u64()),
            packets: limits.packets.map(|n| self.packets(n)),
        }
    }

    fn policer(self, policer: PolicerSpec) -> PolicerSpec {
        PolicerSpec {
            rate: self.rate(policer.rate),
            burst: self.bytes(policer.burst),
        }
    }

    fn network(self, network: &mut Network) -> Result<(), String> {
        for link in &mut network.links {
            for way in [&mut link.forward, &mut link.backward] {
                self.direction(way)
                    .map_err(|what| format!("link {} {what}", link.name))?;
            }
        }
        for buffer in network
            .switches
            .iter_mut()
            .filter_map(|s| s.buffer.as_mut())
        {
            buffer.bytes = self.bytes(buffer.bytes);
        }
        for entry in &mut network.schedule {
            entry.change = match entry.change {
                Change::Rate(rate) => Change::Rate(self.rate(rate)),
                Change::Limits(limits) => Change::Limits(self.limits(limits)),
                other => other,
            };
        }
        Ok(())
    }

    fn direction(self, way: &mut DirectionSpec) -> Result<(), &'static str> {
        if way.shared.is_some() {
            return Err("is a medium that both ends share, which has one speed");
        }
        if way.harmonizer.is_some() {
            return Err("has a harmonizer, whose times are those of one rate");
        }
        way.policer = way.policer.map(|p| self.policer(p));
        way.flow_cap = way.flow_cap.map(|p| self.policer(p));
        if let Some(budget) = &mut way.packet_budget {
            budget.per_second = (budget.per_second / self.by).max(1);
            budget.queue_packets = self.packets(budget.queue_packets);
        }
        let Some(rate) = &mut way.rate else {
            return Ok(());
        };
        match &mut rate.server {
            ServerSpec::Rate(of) => *of = self.rate(*of),
            ServerSpec::Trace(_) => return Err("follows a trace, which has no rate"),
        }
        rate.limits = self.limits(rate.limits);
        match &mut rate.discipline {
            DisciplineSpec::DropTail { mark_above } => {
                *mark_above = mark_above.map(|bytes| self.bytes(bytes));
            }
            DisciplineSpec::Red { min, max, .. } => {
                (*min, *max) = (self.bytes(*min), self.bytes(*max))
            }
            DisciplineSpec::Codel(_) | DisciplineSpec::FqCodel { .. } => {}
        }
        Ok(())
    }
}

/// Two frames of 1538 bytes.
const LEAST_BYTES: u64 = 3_076;

#[cfg(test)]
mod tests {
    use units::Duration;

    use super::*;

    fn path(link: &str) -> PathFile {
        let text = format!(
            "title = \"t\"\n[hosts.a]\n[hosts.b]\n[links.l]\nbetween = [\"a\", \"b\"]\ndelay = \"10ms\"\n{link}"
        );
        PathFile::parse("t.toml".as_ref(), &text).unwrap()
    }

    #[test]
    fn rate_and_queue_are_divided_and_times_stay() {
        let path = path("rate = \"1Gb/s\"\nqueue = \"1MB\"\n");
        let small = path.scaled(4).unwrap();
        assert_eq!(small.scaled_by, 4);
        assert_eq!(
            small.forward.rate,
            Some(Rate::from_bits_per_second(250_000_000))
        );
        assert_eq!(small.forward.queue, Bytes::new(250_000));
        assert_eq!(small.rtt_configured(), Duration::from_ms(20));
        let of = |path: &PathFile| path.network.links[0].forward.rate.clone().unwrap();
        assert_eq!(
            of(&small).server,
            ServerSpec::Rate(Rate::from_bits_per_second(250_000_000))
        );
        assert_eq!(of(&small).limits.bytes, Some(250_000));
        assert_eq!(small.scaled(2).unwrap().scaled_by, 8);
        assert_eq!(path.scaled(1).unwrap(), path);
    }

    #[test]
    fn a_queue_keeps_two_frames_where_it_had_them() {
        let of = |queue: &str, by| {
            let path = path(&format!("rate = \"1Gb/s\"\nqueue = \"{queue}\"\n"));
            path.scaled(by).unwrap().forward.queue.as_u64()
        };
        assert_eq!((of("30760B", 10), of("30750B", 10)), (3_076, 3_076));
        assert_eq!(of("30770B", 10), 3_077);
    }

    #[test]
    fn what_has_no_rate_is_refused_by_name() {
        let none = path("rate = \"1Gb/s\"\n").scaled(0).unwrap_err();
        assert!(none.contains("1 or more"), "{none}");
        let harmonized = path("rate = \"1Gb/s\"\nharmonizer = \"shuffle\"\n");
        let said = harmonized.scaled(2).unwrap_err();
        assert!(said.contains("link l has a harmonizer"), "{said}");
    }
}
