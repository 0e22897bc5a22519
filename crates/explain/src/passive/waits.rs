//! Where a connection's time went, from the first SYN to the last data: to whoever was waited for.
//!
//! Where both sides took turns, each moment belongs to one of them or to the path: the side that sends
//! (to what limited it), the application that had to answer, the way there and back in between. Where
//! only one side sent, or both at once, all is the sender's. Setup counts as far as it took longer than
//! a round trip, and silence of the peer before anything else.

use throughput::{Cause, Finding, Remedy, RemedyHost};
use units::{Bytes, Duration, Rate};

use crate::confidence::{data, ramp};
use crate::text;
use crate::trace::{Connection, Limit, Outage, SideFacts, Spread};

/// What was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Waited {
    /// A limit of the sender that is judged.
    Limit(Limit),
    /// The connection to be made, beyond a round trip.
    Setup,
    /// The client's application, between an answer and the next request.
    Client,
    /// The server's application, between a request and its answer.
    Server,
    /// The path there and back, between a message and its answer.
    RoundTrips,
    /// The ACK of a short segment, with another one waiting for it.
    Nagle,
    /// A word of the peer, with data unacknowledged.
    Outage,
    /// What the other side sent.
    OtherDirection,
    /// Messages of a few round trips to be sent, too short to say what limited that.
    Sending,
}

impl Waited {
    /// Machine-readable name, as in `run.json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limit(limit) => limit.name(),
            Self::Setup => "setup",
            Self::Client => "client",
            Self::Server => "server",
            Self::RoundTrips => "round_trips",
            Self::Nagle => "nagle",
            Self::Outage => "outage",
            Self::OtherDirection => "other_direction",
            Self::Sending => "sending",
        }
    }
}

/// A connection's time, and who had it.
#[derive(Clone, Debug)]
pub(super) struct Times<'a> {
    connection: &'a Connection,
    side: &'a SideFacts,
    /// Who opened it: 0 or 1.
    client: usize,
    /// The judged side.
    sender: usize,
    /// Both took turns.
    pub(super) turns: bool,
    /// All of it.
    pub(super) whole: Duration,
    /// Each part above zero.
    pub(super) parts: Vec<(Waited, Duration)>,
}

impl<'a> Times<'a> {
    pub(super) fn of(connection: &'a Connection, sender: u8) -> Option<Self> {
        let sender = usize::from(sender.min(1));
        let side = &connection.sides[sender];
        let mut times = Self {
            connection,
            side,
            client: usize::from(connection.client()),
            sender,
            turns: takes_turns(connection),
            whole: Duration::ZERO,
            parts: Vec::new(),
        };
        times.add(Waited::Setup, setup_excess(connection));
        times.add(
            Waited::Outage,
            times.silent(sender) + times.silent(1 - sender),
        );
        let mut sending = Duration::ZERO;
        for (limit, time) in times.limits() {
            match times.is_short() && says_little(limit) {
                true => sending = sending + time,
                false => times.add(Waited::Limit(limit), time),
            }
        }
        times.add(Waited::Sending, sending);
        times.add(Waited::Nagle, connection.turns(sender).nagle);
        if times.turns {
            let of = |side: usize| connection.turns(side).thinking;
            times.add(Waited::Client, of(times.client));
            times.add(Waited::Server, of(1 - times.client));
            let (own, other) = (connection.turns(sender), connection.turns(1 - sender));
            times.add(Waited::RoundTrips, own.on_path + other.on_path);
            let silent = times.silent(1 - sender).as_ns();
            let sending = other.sending.as_ns().saturating_sub(silent);
            times.add(Waited::OtherDirection, Duration::from_ns(sending));
        }
        let all: u64 = times.parts.iter().map(|(_, time)| time.as_ns()).sum();
        times.whole = Duration::from_ns(all);
        (all > 0).then_some(times)
    }

    /// Silence while a side's data waited: of the judged side, and of the other one where both took turns.
    fn silent(&self, side: usize) -> Duration {
        let counts = side == self.sender || self.turns;
        let silences = counts.then(|| &self.connection.silences[side]);
        silences.map_or(Duration::ZERO, |silences| silences.total)
    }

    fn add(&mut self, waited: Waited, time: Duration) {
        if time > Duration::ZERO {
            self.parts.push((waited, time));
        }
    }

    pub(super) fn share(&self, waited: Waited) -> f64 {
        let found = self.parts.iter().find(|(part, _)| *part == waited);
        found.map_or(0.0, |(_, time)| time.as_s_f64() / self.whole.as_s_f64())
    }

    /// Both took turns, and the sender's messages took a few round trips each.
    fn is_short(&self) -> bool {
        let turns = self.connection.turns(self.sender);
        let each = turns.sending.as_ns() / turns.messages.max(1);
        let rtt = self.rtt().unwrap_or_default().as_ns();
        self.turns && turns.messages >= MESSAGES_MIN && each < SHORT_ROUNDS * rtt
    }

    /// What the sender's own time went to: silence of the peer taken out, and where both took turns
    /// only the time of its messages.
    fn limits(&self) -> Vec<(Limit, Duration)> {
        let side = self.side;
        let counted = side.limits.iter().filter(|l| super::counts(l.limit));
        let mut list: Vec<(Limit, u64)> = counted.map(|l| (l.limit, l.time.as_ns())).collect();
        let silences = &self.connection.silences[self.sender];
        let absent = silences.absent.as_ns();
        // What silence looks like, the likeliest first.
        let waiting = [
            Limit::RecoveryTimeout,
            Limit::LossWindow,
            Limit::Application,
        ];
        let away = [Limit::Application, Limit::Unknown, Limit::RecoveryTimeout];
        for (looks, mut silent) in [
            (away, absent),
            (waiting, silences.total.as_ns().saturating_sub(absent)),
        ] {
            let place = |limit: &Limit| looks.iter().position(|l| l == limit);
            list.sort_by_key(|(limit, _)| place(limit).unwrap_or(looks.len()));
            for (_, ns) in &mut list {
                let taken = silent.min(*ns);
                (*ns, silent) = (*ns - taken, silent - taken);
            }
        }
        let turns = self.connection.turns(self.sender);
        let nagle = turns.nagle.as_ns();
        if self.turns {
            let pauses = turns.pauses.as_ns();
            let busy = turns.sending.as_ns().saturating_sub(pauses + nagle);
            let busy = busy.saturating_sub(self.connection.silences[self.sender].total.as_ns());
            let others = |(limit, ns): &(Limit, u64)| (*limit != Limit::Application).then_some(*ns);
            let all: u64 = list.iter().filter_map(others).sum();
            let scale = (busy as f64 / all.max(1) as f64).min(1.0);
            list.retain(|(limit, _)| *limit != Limit::Application);
            for (_, ns) in &mut list {
                *ns = crate::trace::whole(*ns as f64 * scale);
            }
            list.push((Limit::Application, pauses));
        } else if let Some((_, ns)) = list.iter_mut().find(|l| l.0 == Limit::Application) {
            *ns = ns.saturating_sub(nagle);
        }
        let list = list.into_iter().filter(|(_, ns)| *ns > 0);
        list.map(|(limit, ns)| (limit, Duration::from_ns(ns)))
            .collect()
    }

    /// What else than the sender's limits took the time.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let each = [
            self.setup(),
            self.silence(),
            self.thinking(Waited::Server),
            self.thinking(Waited::Client),
            self.round_trips(),
            self.nagle(),
        ];
        each.into_iter().flatten().collect()
    }

    fn setup(&self) -> Option<Finding> {
        let share = self.share(Waited::Setup);
        if share == 0.0 {
            return None;
        }
        let setup = &self.connection.setup;
        let took = setup.time.unwrap_or_default();
        let lost = self.connection.sides[self.client].syns_repeated;
        let why = match (setup.challenges, lost) {
            (0, 0) => "the answer to the SYN or its ACK came late".to_owned(),
            (0, 1) => "1 SYN, or the answer to it, was lost".to_owned(),
            (0, n) => format!("{n} SYNs, or the answers to them, were lost"),
            _ => "the server still held a half-open connection of these ports, which the client \
                  had to reset first"
                .to_owned(),
        };
        Some(Finding {
            cause: Cause::ConnectionSetup,
            title: format!("Connection setup took {took}: {why}"),
            confidence: ramp(share, 0.0, 0.5)
                * if lost + setup.challenges > 0 {
                    1.0
                } else {
                    0.6
                },
            share,
            evidence: vec![format!(
                "{} from the first SYN to the end of the handshake, {} from the last SYN",
                took,
                setup.last_try.unwrap_or_default()
            )],
            remedy: Some(Remedy::advice(
                "Find what drops SYNs: a full queue of the listening program (nstat \
                 TcpExtListenDrops), a filter, or a link that loses packets",
                RemedyHost::Network,
                "",
            )),
        })
    }

    fn silence(&self) -> Option<Finding> {
        let of = |side: usize| &self.connection.silences[side];
        let other = self.silent(1 - self.sender) > self.silent(self.sender);
        let whose = if other { 1 - self.sender } else { self.sender };
        let silences = of(whose);
        let longest = silences.longest.iter().max_by_key(|o| o.time())?;
        let share = self.share(Waited::Outage);
        let evidence = silences.longest.iter().map(proof).collect();
        let confidence = ramp(share, 0.0, 0.5) * 0.95;
        let gone = silences.longest.iter().find(|o| !o.ended);
        let Some(gone) = gone.filter(|gone| gone.time() + gone.time() >= longest.time()) else {
            let more = match silences.count {
                1 => String::new(),
                n => format!(" ({n} outages, {} in all)", silences.total),
            };
            return Some(Finding {
                cause: Cause::Outage,
                title: match longest.is_absence {
                    false => format!(
                        "The path was interrupted for {}{more}: data were sent, and the receiver acknowledged \
                         nothing",
                        longest.time()
                    ),
                    true => format!(
                        "The path was interrupted for {}{more}: nothing came from the sender, which had more \
                         to send",
                        longest.time()
                    ),
                },
                confidence,
                share,
                evidence,
                remedy: Some(Remedy::advice(
                    "Find what interrupted the path at that time: a route or link that changed, a \
                     radio link, a device that restarted",
                    RemedyHost::Network,
                    "",
                )),
            });
        };
        let (cause, title, advice, sure) = self.gone(gone, whose);
        Some(Finding {
            cause,
            title,
            confidence: confidence * sure,
            share,
            evidence,
            remedy: Some(Remedy::advice(advice, RemedyHost::Network, "")),
        })
    }

    /// What a connection whose peer never came back has met, and how sure that is.
    fn gone(&self, gone: &Outage, whose: usize) -> (Cause, String, &'static str, f64) {
        let side = &self.connection.sides[whose];
        let (passed, tried) = (side.passed_bytes_max, side.tried_bytes_max);
        const LARGE: &str = "Let ICMP's \"fragmentation needed\" through, clamp the MSS at the tunnel, or set \
                             net.ipv4.tcp_mtu_probing to 1";
        const STOPPED: &str = "Find who stopped it: a firewall or intrusion prevention that dropped the connection, \
                               a translator that forgot it, or the far host";
        let acked = Bytes::new(side.acked_bytes);
        if gone.is_absence {
            let title = format!(
                "After {acked} nothing came from the sender any more, which had more to send: silence for {}",
                gone.time()
            );
            return (Cause::StoppedDelivery, title, STOPPED, ONLY_SILENCE);
        }
        if passed > 0 && passed < tried {
            let title = format!(
                "Segments of {tried} B never came through, those of up to {passed} B did: something on \
                 the path drops large packets without saying so"
            );
            return (Cause::PathMtu, title, LARGE, 1.0);
        }
        // Not even the first one, and it was a full one.
        let made = self.connection.setup.time.is_some();
        if passed == 0 && made && side.acked_bytes == 0 && tried >= LARGE_SEGMENT {
            let title = format!(
                "No segment of {tried} B ever came through, though the handshake did: something on the path \
                 drops large packets without saying so, or all that follows a handshake"
            );
            return (Cause::PathMtu, title, LARGE, ONLY_LARGE);
        }
        let title = format!(
            "After {acked} nothing was delivered any more: {} without an answer, over {}",
            text::plural(gone.attempts, "packet"),
            gone.time()
        );
        (Cause::StoppedDelivery, title, STOPPED, 1.0)
    }

    fn thinking(&self, who: Waited) -> Option<Finding> {
        let share = self.share(who);
        let of_client = who == Waited::Client;
        let index = if of_client {
            self.client
        } else {
            1 - self.client
        };
        let turns = self.connection.turns(index);
        if share == 0.0 {
            return None;
        }
        let each = Duration::from_ns(turns.thinking_ns.median);
        let share_said = text::percent(share);
        let n = turns.messages;
        let (name, title) = thought(of_client, each, n, &share_said);
        let rest = Duration::from_ns(self.whole.as_ns().saturating_sub(turns.thinking.as_ns()));
        let mut evidence = vec![format!(
            "{name}: {} to {} each, {} in all, the round trip left out; without it the connection would take \
             {rest} instead of {}",
            Duration::from_ns(turns.thinking_ns.min),
            Duration::from_ns(turns.thinking_ns.max),
            turns.thinking,
            self.whole
        )];
        evidence.extend(self.sizes());
        if let Some((frame, time)) = turns.longest {
            evidence.push(format!("longest before frame {frame}, {time}"));
        }
        let (cause, advice, host) = if of_client {
            (
                Cause::ClientThink,
                "Look at what the client does between an answer and its next request",
                RemedyHost::Near,
            )
        } else {
            (
                Cause::ServerThink,
                "Look at what the server does between a request and its answer: its own work, its \
                 disks, services behind it",
                RemedyHost::Far,
            )
        };
        Some(Finding {
            cause,
            title,
            confidence: self.sure(n, share),
            share,
            evidence,
            remedy: Some(Remedy::advice(advice, host, "")),
        })
    }

    fn round_trips(&self) -> Option<Finding> {
        let share = self.share(Waited::RoundTrips);
        if share == 0.0 {
            return None;
        }
        let [client, server] = [self.client, 1 - self.client].map(|s| self.connection.turns(s));
        let n = client.messages.min(server.messages);
        let rtt = self.rtt()?;
        let share_said = text::percent(share);
        let block = [&server.message_bytes, &client.message_bytes]
            .into_iter()
            .max_by_key(|size| size.median)?;
        let segments = block.median / u64::from(self.side.segment_bytes.max(1));
        let title = if segments >= BLOCK_SEGMENTS && is_one_size(block) {
            let size = Bytes::new(block.max);
            format!(
                "One request of {size} at a time, and {n} of them: each waited a round trip of {rtt} for the \
                 next ({size} / {rtt} = {} at most), {share_said} of the time",
                Rate::average(size, rtt)
            )
        } else {
            format!(
                "{n} requests one after the other waited a round trip of {rtt} each, {share_said} of the time"
            )
        };
        let path = client.on_path + server.on_path;
        let rest = Duration::from_ns(self.whole.as_ns().saturating_sub(path.as_ns()));
        let mut evidence = vec![format!(
            "{path} on the path between messages; with requests sent ahead the connection would take \
             {rest} or little more instead of {}",
            self.whole
        )];
        evidence.extend(self.sizes());
        Some(Finding {
            cause: Cause::RoundTrips,
            title,
            confidence: self.sure(n, share),
            share,
            evidence,
            remedy: Some(Remedy::advice(
                "Send requests without waiting for the answer to the last (pipelining, several at a \
                 time, larger ones), or come nearer",
                RemedyHost::Near,
                "",
            )),
        })
    }

    fn nagle(&self) -> Option<Finding> {
        let turns = self.connection.turns(self.sender);
        let share = self.share(Waited::Nagle);
        if share == 0.0 {
            return None;
        }
        let n = turns.nagle_times;
        let each = Duration::from_ns(turns.nagle.as_ns() / n.max(1));
        let ahead = self.side.rtt_ahead.unwrap_or_default();
        let delayed = each >= ahead + DELAY_MIN;
        let times = if n == 1 {
            "Once".to_owned()
        } else {
            format!("{n} times")
        };
        Some(Finding {
            cause: Cause::Nagle,
            title: format!(
                "{times} a short segment waited {each} for the ACK of the one before (Nagle's \
                 algorithm{}), {} of the time",
                if delayed {
                    ", and an ACK that the peer delayed"
                } else {
                    ""
                },
                text::percent(share)
            ),
            confidence: self.sure(n, share),
            share,
            evidence: vec![format!(
                "{} in all; each time all was acknowledged by an ACK without data, and the next \
                 segment followed at once",
                turns.nagle
            )],
            remedy: Some(Remedy::advice(
                "Set TCP_NODELAY, or hand over each message in one write",
                if self.sender == self.client {
                    RemedyHost::Near
                } else {
                    RemedyHost::Far
                },
                "more small packets where a program writes byte by byte",
            )),
        })
    }

    fn sure(&self, messages: u64, share: f64) -> f64 {
        data(usize::try_from(messages).unwrap_or(usize::MAX)) * ramp(share, 0.0, 0.5)
    }

    /// How large the messages are.
    fn sizes(&self) -> Option<String> {
        let [client, server] = [self.client, 1 - self.client].map(|s| self.connection.turns(s));
        (client.messages > 0 && server.messages > 0).then(|| {
            format!(
                "{} of mostly {}, {} of mostly {}",
                text::plural(client.messages, "request"),
                Bytes::new(client.message_bytes.median),
                text::plural(server.messages, "answer"),
                Bytes::new(server.message_bytes.median)
            )
        })
    }

    /// The least round trip, both halves.
    fn rtt(&self) -> Option<Duration> {
        let ahead = self.side.rtt_ahead?;
        Some(ahead + self.side.rtt_behind.unwrap_or_default())
    }
}

/// What shows an outage.
fn proof(outage: &Outage) -> String {
    let (from, to, time) = (outage.from.frame, outage.to.frame, outage.time());
    let packets = text::plural(outage.attempts, "packet");
    match (outage.is_absence, outage.attempts) {
        (true, 0) => format!(
            "nothing from the sender between frames {from} and {to}, for {time}: it had more, since its last data \
             had no PSH or since it retransmitted what had come"
        ),
        (true, _) => format!(
            "nothing from the sender between frames {from} and {to}, for {time}; by the IP identification \
             {packets} sent meanwhile"
        ),
        _ => format!(
            "nothing acknowledged between frames {from} and {to}, for {time}; {packets} sent meanwhile"
        ),
    }
}

/// Who thought, and that in a sentence.
fn thought(of_client: bool, each: Duration, n: u64, share_said: &str) -> (&'static str, String) {
    match (of_client, n) {
        (false, 1) => (
            "server",
            format!("The server took {each} to answer, {share_said} of the time"),
        ),
        (false, _) => (
            "server",
            format!(
                "The server took {each} to answer each of {n} requests, {share_said} of the time"
            ),
        ),
        (true, 1) => (
            "client",
            format!("The client waited {each} before its request, {share_said} of the time"),
        ),
        (true, _) => (
            "client",
            format!(
                "The client waited {each} before each of {n} requests, {share_said} of the time"
            ),
        ),
    }
}

/// Limits that are told by comparing round trips.
const fn says_little(limit: Limit) -> bool {
    matches!(
        limit,
        Limit::SenderWindow | Limit::Unknown | Limit::Pacing | Limit::CongestionWindow
    )
}

/// Whether both sides sent in turns, and not at once.
fn takes_turns(connection: &Connection) -> bool {
    let [a, b] = [connection.turns(0), connection.turns(1)];
    let messages = a.messages.min(b.messages);
    messages > 0 && a.overlaps + b.overlaps <= messages
}

/// Time of the handshake beyond a round trip.
fn setup_excess(connection: &Connection) -> Duration {
    let Some(took) = connection.setup.time else {
        return Duration::ZERO;
    };
    let [a, b] = connection
        .sides
        .each_ref()
        .map(|side| side.rtt_ahead.unwrap_or_default());
    let excess = took.as_ns().saturating_sub((a + b).as_ns());
    // A server that is slow to answer a SYN by less is a detail.
    if connection.setup.challenges + repeated(connection) == 0 && excess < SETUP_NS_MIN {
        return Duration::ZERO;
    }
    Duration::from_ns(excess)
}

fn repeated(connection: &Connection) -> u64 {
    connection.sides.iter().map(|side| side.syns_repeated).sum()
}

/// Most messages have this size.
fn is_one_size(size: &Spread) -> bool {
    size.median >= size.max / 8 * 7
}

/// Messages that are short on the whole, and their round trips.
const MESSAGES_MIN: u64 = 3;
const SHORT_ROUNDS: u64 = 4;
/// Smaller answers are not called blocks.
const BLOCK_SEGMENTS: u64 = 4;
/// An ACK that comes so much later than it could was delayed.
const DELAY_MIN: Duration = Duration::from_ms(15);
/// A segment that a tunnel may be too small for: the least MTU of IPv6 less headers (RFC 8200).
const LARGE_SEGMENT: u32 = 1_220;
/// What it is worth that only large segments were tried.
const ONLY_LARGE: f64 = 0.8;
/// What it is worth that a sender ended without PSH.
const ONLY_SILENCE: f64 = 0.8;
const SETUP_NS_MIN: u64 = 200_000_000;
