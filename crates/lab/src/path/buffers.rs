//! Buffers that the output queues of a switch share: what a path file may ask for.
//!
//! A queue is settled together with the others of its buffer. So nothing in front of it may delay
//! what passes (a packet budget), and no schedule may change it: its rate or limit would change at
//! another time for those that were asked earlier.

use link::spec::DisciplineSpec;
use link::{Alpha, Change};
use spans::Spanned;
use units::Bytes;

use super::links::both_directions;
use super::network::{BufferSpec, LinkSpec, Node};
use super::raw::{RawLink, RawSwitch};
use super::{Refusal, refuse};

/// The buffer that a switch asks for. Queues of which the file says nothing may fill their part.
pub(super) fn check_buffer<'a>(
    raw: &RawSwitch,
    node: Node,
    links: &mut [LinkSpec],
    raw_link: impl Fn(usize) -> &'a Spanned<RawLink>,
) -> Result<Option<BufferSpec>, Refusal> {
    let Some(buffer) = &raw.buffer else {
        return match &raw.buffer_alpha {
            Some(alpha) => refuse(alpha, "buffer_alpha: the switch has no buffer to share"),
            None => Ok(None),
        };
    };
    let alpha = raw.buffer_alpha.as_ref();
    let Some(alpha_of) = Alpha::new(alpha.map_or(1.0, |a| *a.get_ref())) else {
        let at = alpha.map_or(0, |a| a.span().start);
        return Err(Refusal {
            at,
            problem: "buffer_alpha: expected 1/1024 (0.001) to 1024".into(),
        });
    };
    let bytes = buffer.get_ref().0;
    if bytes > BUFFER_MAX {
        return refuse(
            buffer,
            format!("buffer = {bytes}: expected at most {BUFFER_MAX}"),
        );
    }
    let mut queues = 0;
    for (number, link) in links.iter_mut().enumerate() {
        let mtu_bytes = link.mtu_bytes;
        for forward in [true, false] {
            if link.between[usize::from(!forward)] != node {
                continue;
            }
            let own = if forward {
                &mut link.forward
            } else {
                &mut link.backward
            };
            let (medium, has_budget) = (own.medium, own.packet_budget.is_some());
            let is_half_duplex = own.shared.is_some();
            let has_harmonizer = own.harmonizer.is_some();
            let Some(rate) = &mut own.rate else { continue };
            let typed = raw_link(number);
            if has_budget {
                return refuse(
                    typed,
                    "packets_per_second: not before a queue that shares a buffer",
                );
            }
            if has_harmonizer {
                return refuse(typed, "harmonizer: not before a queue that shares a buffer");
            }
            if is_half_duplex {
                return refuse(
                    typed,
                    "duplex: a queue that shares a buffer sends by full duplex",
                );
            }
            if !matches!(rate.discipline, DisciplineSpec::DropTail { .. }) {
                return refuse(
                    typed,
                    "discipline: queues that share a buffer are drop-tail",
                );
            }
            let frame = medium.wire_bytes(mtu_bytes.saturating_add(14));
            if alpha_of.threshold(bytes.as_u64()) < frame.into() || bytes < Bytes::new(frame.into())
            {
                return refuse(
                    buffer,
                    format!("buffer: a full frame takes {frame} bytes on the wire; none would fit"),
                );
            }
            let [there, back] = both_directions(typed.get_ref());
            let stated = if forward { there } else { back };
            if stated.queue.is_none_or(|q| q.get_ref().0 == Bytes::new(0)) {
                rate.limits.bytes = Some(alpha_of.most(bytes, frame).as_u64());
            }
            queues += 1;
        }
    }
    if queues == 0 {
        return refuse(
            buffer,
            "buffer: no link that leaves the switch has a rate, so nothing waits",
        );
    }
    Ok(Some(BufferSpec {
        bytes,
        alpha: alpha_of,
    }))
}

/// Why a queue that shares a buffer does not take a change, if it does not.
pub(crate) const fn refuses(change: &Change) -> Option<&'static str> {
    match change {
        Change::Rate(_) | Change::Limits(_) => {
            Some("its queue shares a switch's buffer: rate and queue stay as they are")
        }
        _ => None,
    }
}

/// More than any switch has, less than what a lab may set aside.
const BUFFER_MAX: Bytes = Bytes::new(1 << 30);
