//! What is said of messages that were measured.

use crate::model::{MessagePoint, MessageSweep};
use crate::text;

/// Where the messages went, and what latency and rates are.
pub(crate) fn notes(messages: &MessageSweep) -> Vec<String> {
    let ends = if messages.spin {
        "both ends spin"
    } else {
        "both ends sleep until a message is there"
    };
    let call = match messages.transport.starts_with("verbs") {
        true => "send",
        false => "write",
    };
    let what = format!(
        "Latency is half a round trip; {ends}. Of it the tool's own part is {:.0} ns (clock {:.0} ns). \
         Rates: one {call} a message, at most {} unconfirmed.",
        messages.tool_ns / 2.0,
        messages.clock_ns / 2.0,
        messages.window
    );
    carried(messages).into_iter().chain([what]).collect()
}

/// Where the messages went if not over TCP, and what was lost.
fn carried(messages: &MessageSweep) -> Option<String> {
    let port = messages
        .points
        .iter()
        .find_map(|p| p.rdma_port.as_deref())?;
    let mut said = format!(
        "By {} through {}",
        text::plain(&messages.transport),
        text::plain(port)
    );
    let sum = |each: fn(&MessagePoint) -> Option<u64>| {
        let known: Option<Vec<u64>> = messages.points.iter().map(each).collect();
        known.map(|all| all.iter().fold(0, |sum: u64, &n| sum.saturating_add(n)))
    };
    if let (Some(up), Some(down)) = (sum(|p| p.up_lost), sum(|p| p.down_lost)) {
        put!(said, "; lost: {up} up, {down} down");
    }
    Some(said + ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_and_what_was_lost_are_told() {
        let mut messages = MessageSweep {
            transport: "verbs-uc".to_owned(),
            spin: true,
            window: 128,
            points: vec![MessagePoint {
                message_bytes: 64,
                up_lost: Some(3),
                down_lost: Some(0),
                rdma_port: Some("rxe0 port 1".to_owned()),
                ..MessagePoint::default()
            }],
            ..MessageSweep::default()
        };
        let said = notes(&messages);
        let port = "By verbs-uc through rxe0 port 1; lost: 3 up, 0 down.";
        assert_eq!(said[0], port);
        assert!(
            said[1].contains("one send a message, at most 128"),
            "{said:?}"
        );
        messages.points[0].up_lost = None;
        assert!(!notes(&messages)[0].contains("lost"));
        messages.points[0].rdma_port = None;
        messages.transport = "tcp".to_owned();
        let said = notes(&messages);
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("one write a message"), "{said:?}");
    }
}
