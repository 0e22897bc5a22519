//! What is planted: kinds of limits, and parameters drawn at random for each.
//!
//! Every draw follows from the seed and the kind, so a run can be made again. Ranges keep the planted
//! limit the tightest one, by a factor of two and more, by the formulas named at each; nothing else of
//! them was chosen with a look at what `explain` says.

use std::fmt::Write as _;

use units::{Bytes, Duration, Rate};

/// A limit that is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The receiver's buffer is small.
    ReceiveBuffer,
    /// A firewall takes window scaling out of SYNs: 64 KiB at most.
    WindowScaling,
    /// The sender's buffer is small.
    SendBuffer,
    /// Nothing is wrong: the path is full. CUBIC or Reno, a queue of a bandwidth-delay product or two.
    Healthy,
    /// The same by BBR.
    HealthyBbr,
    /// Frames are lost at random.
    Loss,
    /// The queue holds a small part of the bandwidth-delay product; Reno.
    ShallowQueue,
    /// A policer drops what is above its rate.
    Policer,
    /// The application writes lumps by a timer.
    Lumps,
    /// It answers requests after a time of thinking.
    Answers,
    /// It sends small messages at random times.
    Trickle,
    /// The socket is paced.
    Paced,
    /// It ends within slow start.
    Short,
    /// The receiver's application reads slowly.
    SlowReader,
    /// A small receive buffer, and losses that alone would allow four times as much.
    WindowAndLoss,
    /// Losses, and a receive buffer that alone would allow four times as much.
    LossAndWindow,
    /// Lumps, and losses that alone would allow four times as much.
    LumpsAndLoss,
    /// A paced socket, and a send buffer that alone would allow three times as much.
    PacedAndBuffer,
    /// Requests and answers: the server thinks.
    ServerThink,
    /// The same: the client thinks.
    ClientThink,
    /// Small requests one after the other, no thinking.
    Sequential,
    /// Requests of two small writes, without TCP_NODELAY.
    Nagle,
    /// Blocks of one size, each asked for when the last has come, as SMB and SSH windows do.
    Blocks,
    /// A short upload, then a long download that loses packets.
    UploadDownload,
    /// SYNs, or their answers, are lost.
    HandshakeLoss,
    /// The path is interrupted for a time.
    Outage,
    /// From some moment on nothing is delivered.
    StatefulDrop,
    /// Large packets are dropped without a word.
    BlackHole,
    /// Requests, then an upload that the server reads slowly.
    SlowUpstream,
}

/// What the largest share of time is to go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Application,
    Pacing,
    ReceiveWindow,
    SlowReader,
    SendWindow,
    SlowStart,
    Loss,
    Bottleneck,
    Setup,
    Outage,
    Stopped,
    PathMtu,
    Server,
    Client,
    RoundTrips,
    Nagle,
    Other,
}

/// What the sending application does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sends {
    /// As much as goes.
    Bulk,
    /// So much and no more.
    Once(u64),
    /// So many bytes at a time, so far apart.
    Lumps { bytes: u64, every: Duration },
    /// After each request of the peer's: a pause, then so many bytes.
    Answers { bytes: u64, think: Duration },
    /// Messages of up to twice so many bytes, after pauses of up to twice so long.
    Trickle { bytes: u64, pause: Duration },
    /// Requests and answers, the client first.
    Talk(Talk),
    /// So many bytes, then as many the other way as go.
    UploadDownload { bytes: u64 },
    /// Three small requests, then an upload of as much as goes.
    Upload,
}

/// A request of the client's, a server that thinks, its answer, a client that thinks, and again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Talk {
    pub(crate) request: u64,
    pub(crate) answer: u64,
    /// Of the client and of the server, on the average: half to one and a half times as long each.
    pub(crate) think: [Duration; 2],
    /// Bytes of a request that are written first, without TCP_NODELAY.
    pub(crate) first: Option<u64>,
    /// Requests; without one as many as the time allows.
    pub(crate) count: Option<u64>,
}

/// What happens to the path, from the begin of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cut {
    pub(crate) after: Duration,
    /// `None` where it stays so.
    pub(crate) lasts: Option<Duration>,
    /// Both ways, or only the way back.
    pub(crate) both: bool,
}

/// One connection to be made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) rtt: Duration,
    pub(crate) rate: Rate,
    pub(crate) queue: Bytes,
    pub(crate) offloads: bool,
    pub(crate) congestion: &'static str,
    /// Largest buffers of the sender and the receiver.
    pub(crate) buffers: [Option<Bytes>; 2],
    /// More of the link's lines.
    pub(crate) link: String,
    pub(crate) pacing: Option<Rate>,
    pub(crate) sends: Sends,
    /// How fast the receiver reads.
    pub(crate) reads: Option<Rate>,
    pub(crate) time: Duration,
    pub(crate) cut: Option<Cut>,
}

impl Kind {
    pub(crate) const ALL: [Self; 29] = [
        Self::ReceiveBuffer,
        Self::WindowScaling,
        Self::SendBuffer,
        Self::Healthy,
        Self::HealthyBbr,
        Self::Loss,
        Self::ShallowQueue,
        Self::Policer,
        Self::Lumps,
        Self::Answers,
        Self::Trickle,
        Self::Paced,
        Self::Short,
        Self::SlowReader,
        Self::WindowAndLoss,
        Self::LossAndWindow,
        Self::LumpsAndLoss,
        Self::PacedAndBuffer,
        Self::ServerThink,
        Self::ClientThink,
        Self::Sequential,
        Self::Nagle,
        Self::Blocks,
        Self::UploadDownload,
        Self::HandshakeLoss,
        Self::Outage,
        Self::StatefulDrop,
        Self::BlackHole,
        Self::SlowUpstream,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ReceiveBuffer => "receive-buffer",
            Self::WindowScaling => "window-scaling",
            Self::SendBuffer => "send-buffer",
            Self::Healthy => "healthy",
            Self::HealthyBbr => "healthy-bbr",
            Self::Loss => "loss",
            Self::ShallowQueue => "shallow-queue",
            Self::Policer => "policer",
            Self::Lumps => "lumps",
            Self::Answers => "answers",
            Self::Trickle => "trickle",
            Self::Paced => "paced",
            Self::Short => "short",
            Self::SlowReader => "slow-reader",
            Self::WindowAndLoss => "window+loss",
            Self::LossAndWindow => "loss+window",
            Self::LumpsAndLoss => "lumps+loss",
            Self::PacedAndBuffer => "paced+buffer",
            Self::ServerThink => "server-think",
            Self::ClientThink => "client-think",
            Self::Sequential => "sequential",
            Self::Nagle => "nagle",
            Self::Blocks => "blocks",
            Self::UploadDownload => "upload-download",
            Self::HandshakeLoss => "handshake-loss",
            Self::Outage => "outage",
            Self::StatefulDrop => "stateful-drop",
            Self::BlackHole => "black-hole",
            Self::SlowUpstream => "slow-upstream",
        }
    }

    pub(crate) const fn class(self) -> Class {
        match self {
            Self::ReceiveBuffer | Self::WindowScaling | Self::WindowAndLoss => Class::ReceiveWindow,
            Self::SendBuffer => Class::SendWindow,
            Self::Healthy | Self::HealthyBbr => Class::Bottleneck,
            Self::Loss
            | Self::ShallowQueue
            | Self::Policer
            | Self::LossAndWindow
            | Self::UploadDownload => Class::Loss,
            Self::Lumps | Self::Trickle | Self::LumpsAndLoss => Class::Application,
            // Who connects thinks.
            Self::Answers | Self::ClientThink => Class::Client,
            Self::ServerThink => Class::Server,
            Self::Sequential | Self::Blocks => Class::RoundTrips,
            Self::Nagle => Class::Nagle,
            Self::HandshakeLoss => Class::Setup,
            Self::Outage => Class::Outage,
            Self::StatefulDrop => Class::Stopped,
            Self::BlackHole => Class::PathMtu,
            Self::Paced | Self::PacedAndBuffer => Class::Pacing,
            Self::Short => Class::SlowStart,
            Self::SlowReader | Self::SlowUpstream => Class::SlowReader,
        }
    }
}

impl Class {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Pacing => "pacing",
            Self::ReceiveWindow => "receive window",
            Self::SlowReader => "slow reader",
            Self::SendWindow => "send window",
            Self::SlowStart => "slow start",
            Self::Loss => "loss",
            Self::Bottleneck => "bottleneck",
            Self::Setup => "setup",
            Self::Outage => "outage",
            Self::Stopped => "stopped delivery",
            Self::PathMtu => "path MTU",
            Self::Server => "server",
            Self::Client => "client",
            Self::RoundTrips => "round trips",
            Self::Nagle => "Nagle",
            Self::Other => "other",
        }
    }
}

impl Plan {
    /// The `number`th draw of a kind.
    pub(crate) fn draw(kind: Kind, number: u32, seed: u64) -> Self {
        let mut dice = Dice::new(seed, kind as u64, u64::from(number));
        let congestion = ["cubic", "reno"][usize::from(dice.coin())];
        // A bandwidth-delay product of 40 full segments at least: below that nothing is a window.
        let (rtt_s, rate) = loop {
            let rtt_s = dice.log(0.004, 0.2);
            let rate = dice.log(10e6, 300e6);
            if rate * rtt_s / 8.0 >= 40.0 * FRAME {
                break (rtt_s, rate);
            }
        };
        let product = rate * rtt_s / 8.0;
        let mut plan = Self {
            kind,
            name: format!("{}-{number}", kind.name()),
            rtt: seconds(rtt_s),
            rate: bits(rate),
            queue: bytes(product * dice.log(1.0, 2.0)),
            offloads: dice.coin(),
            congestion,
            buffers: [None; 2],
            link: String::new(),
            pacing: None,
            sends: Sends::Bulk,
            reads: None,
            time: seconds((80.0 * rtt_s).clamp(3.0, 10.0)),
            cut: None,
        };
        plan.plant(product, &mut dice);
        plan
    }

    fn plant(&mut self, product: f64, dice: &mut Dice) {
        let (rtt_s, rate) = (self.rtt.as_s_f64(), self.rate.as_bits_per_second() as f64);
        // Loss that halves Reno's mean window each time: 1.22 / sqrt(p) segments (Mathis 1997).
        let loss_for = |window: f64| (1.22 * FRAME / window).powi(2);
        // What a window lets through, in 4 segments to a third of the product.
        let window = |dice: &mut Dice| dice.log(4.0 * FRAME, product / 3.0);
        match self.kind {
            // Half of a buffer is window, half the kernel's overhead.
            Kind::ReceiveBuffer => {
                self.buffers[1] = Some(bytes(2.0 * window(dice).max(8.0 * FRAME)))
            }
            Kind::SendBuffer => self.buffers[0] = Some(bytes(2.0 * window(dice).max(8.0 * FRAME))),
            Kind::WindowScaling => {
                // Three times 64 KiB and more.
                let product = product.max(dice.log(3.0, 10.0) * 65_536.0);
                self.rate = bits(product * 8.0 / rtt_s);
                self.queue = bytes(product);
                self.link = "middlebox = [\"strip-window-scale\"]\n".into();
            }
            Kind::Healthy => {}
            Kind::HealthyBbr => self.congestion = "bbr",
            Kind::Loss => {
                let loss = loss_for(dice.log(6.0 * FRAME, product / 4.0));
                self.link = format!("forward = {{ loss = {loss:.6} }}\n");
            }
            Kind::ShallowQueue => {
                self.congestion = "reno";
                self.queue = bytes((product * dice.log(0.02, 0.1)).max(3.0 * FRAME));
                // Reno grows a segment a round trip: half a product must fit in some rounds.
                self.time = seconds(8.0);
            }
            Kind::Policer => {
                let policed = rate * dice.log(0.1, 0.4);
                let burst = (policed * rtt_s / 8.0 * dice.log(0.1, 0.5)).max(10.0 * FRAME);
                self.link = format!(
                    "forward = {{ policer = {{ rate = \"{policed:.0}b/s\", burst = \"{burst:.0}B\" }} }}\n"
                );
            }
            Kind::Lumps | Kind::LumpsAndLoss => {
                let every = dice.log(0.005, 0.4);
                // A tenth to two fifths of the rate; in a lump that slow start can send in the time.
                let of_rate = rate / 8.0 * every * dice.log(0.1, 0.4);
                let can = 10.0 * FRAME * (every / rtt_s).clamp(0.5, 8.0).exp2() / 4.0;
                let lump = of_rate.min(can).max(2_000.0) + dice.even(0.0, 999.0);
                self.sends = Sends::Lumps {
                    bytes: lump as u64,
                    every: seconds(every.max(lump * 8.0 / rate * 2.5)),
                };
                if self.kind == Kind::LumpsAndLoss {
                    let used = lump * rtt_s / every.max(rtt_s);
                    let loss = loss_for((4.0 * used).max(40.0 * FRAME));
                    self.link = format!("forward = {{ loss = {loss:.6} }}\n");
                }
            }
            Kind::Answers => {
                let answer = dice.log(2_000.0, product.min(300_000.0));
                // Round trips of slow start from ten segments, then as long again and more.
                let rounds = (answer / (10.0 * FRAME) + 1.0).log2() + 1.0;
                let busy = rtt_s * rounds + answer * 8.0 / rate;
                self.sends = Sends::Answers {
                    bytes: answer as u64,
                    think: seconds((busy * dice.log(2.0, 6.0)).max(0.002)),
                };
            }
            Kind::Trickle => {
                let pause = dice.log(0.001, 0.05);
                let message = (rate / 8.0 * pause * dice.log(0.02, 0.2)).min(20_000.0);
                self.sends = Sends::Trickle {
                    bytes: message.max(200.0) as u64,
                    pause: seconds(pause),
                };
            }
            Kind::Paced | Kind::PacedAndBuffer => {
                // Eight segments in flight at least, so that there is a spacing.
                let paced = (rate * dice.log(0.1, 0.4)).max(8.0 * FRAME * 8.0 / rtt_s);
                self.pacing = Some(bits(paced));
                if self.kind == Kind::PacedAndBuffer {
                    // The kernel keeps data until they are acknowledged.
                    self.buffers[0] = Some(bytes(2.0 * 3.0 * paced / 8.0 * rtt_s + 100_000.0));
                }
            }
            Kind::Short => {
                // A quarter of what slow start reaches before the path is full.
                let most = (product / 4.0).max(12.0 * FRAME);
                self.sends = Sends::Once(dice.log(11.0 * FRAME, most.max(11.1 * FRAME)) as u64);
                self.time = seconds(10.0);
            }
            Kind::SlowReader => {
                self.reads = Some(bits(rate * dice.log(0.05, 0.4)));
                // Twice what the path needs, so that it is soon full.
                self.buffers[1] = Some(bytes((4.0 * product).max(131_072.0)));
            }
            Kind::WindowAndLoss => {
                // Small enough that four times of it is still below the product.
                let held = dice.log(6.0 * FRAME, (product / 8.0).max(6.1 * FRAME));
                self.buffers[1] = Some(bytes(2.0 * held.max(8.0 * FRAME)));
                let loss = loss_for(4.0 * held.max(8.0 * FRAME));
                self.link = format!("forward = {{ loss = {loss:.6} }}\n");
            }
            Kind::LossAndWindow => {
                let lossy = dice.log(6.0 * FRAME, (product / 8.0).max(6.1 * FRAME));
                self.buffers[1] = Some(bytes(2.0 * 4.0 * lossy));
                let loss = loss_for(lossy);
                self.link = format!("forward = {{ loss = {loss:.6} }}\n");
            }
            _ => self.plant_dialogue(product, dice),
        }
    }

    /// Kinds in which both sides speak, or the path fails.
    fn plant_dialogue(&mut self, product: f64, dice: &mut Dice) {
        let rate = self.rate.as_bits_per_second() as f64;
        let talk = Talk {
            request: dice.log(40.0, 1_400.0) as u64,
            answer: dice.log(100.0, 8.0 * FRAME) as u64,
            think: [Duration::ZERO; 2],
            first: None,
            count: None,
        };
        match self.kind {
            Kind::UploadDownload => {
                // A second of it at most.
                let bytes = (product * 4.0).min(rate / 8.0);
                self.sends = Sends::UploadDownload {
                    bytes: bytes as u64,
                };
                let loss = (1.22 * FRAME / dice.log(6.0 * FRAME, product / 4.0)).powi(2);
                self.link = format!("backward = {{ loss = {loss:.6} }}\n");
                self.time = seconds(8.0);
            }
            Kind::SlowUpstream => {
                self.reads = Some(bits(rate * dice.log(0.05, 0.4)));
                self.buffers[1] = Some(bytes((4.0 * product).max(131_072.0)));
                self.sends = Sends::Upload;
            }
            Kind::HandshakeLoss | Kind::Outage | Kind::StatefulDrop | Kind::BlackHole => {
                self.plant_failure(talk, dice);
            }
            _ => self.plant_talk(talk, product, dice),
        }
    }

    /// Requests and answers on a path that is well.
    fn plant_talk(&mut self, mut talk: Talk, product: f64, dice: &mut Dice) {
        let (rtt_s, rate) = (self.rtt.as_s_f64(), self.rate.as_bits_per_second() as f64);
        match self.kind {
            Kind::ServerThink | Kind::ClientThink => {
                talk.answer = dice.log(100.0, product.min(200_000.0)) as u64;
                let answer = talk.answer as f64;
                let rounds = (answer / (10.0 * FRAME) + 1.0).log2() + 1.0;
                let busy = rtt_s * rounds + answer * 8.0 / rate;
                let think = (busy * dice.log(2.0, 8.0)).max(0.005);
                let who = usize::from(self.kind == Kind::ServerThink);
                talk.think[who] = seconds(think);
                // The other one thinks, too, for a tenth of that at most.
                talk.think[1 - who] = seconds(think * dice.even(0.0, 0.1));
                self.time = seconds((12.0 * (think + busy)).clamp(3.0, 12.0));
                self.sends = Sends::Talk(talk);
            }
            Kind::Sequential => {
                let think = rtt_s * dice.even(0.0, 0.1);
                talk.think = [seconds(think), seconds(think)];
                self.sends = Sends::Talk(talk);
            }
            Kind::Nagle => {
                talk.request = dice.log(100.0, 1_200.0) as u64;
                talk.first = Some((talk.request as f64 * dice.even(0.1, 0.9)) as u64);
                // An answer of one segment and no queue: else other ACKs are in between.
                talk.answer = dice.log(20.0, 1_000.0) as u64;
                talk.think[0] = seconds(rtt_s * dice.even(0.0, 0.1));
                self.sends = Sends::Talk(talk);
            }
            Kind::Blocks => {
                let most = (product / 4.0).clamp(8_192.0, 262_144.0);
                let block = dice.log(8_192.0, most) as u64;
                match dice.coin() {
                    true => talk.answer = block,
                    false => (talk.request, talk.answer) = (block, 84),
                }
                self.time = seconds((80.0 * rtt_s).clamp(3.0, 12.0));
                self.sends = Sends::Talk(talk);
            }
            _ => {}
        }
    }

    fn plant_failure(&mut self, mut talk: Talk, dice: &mut Dice) {
        let (rtt_s, rate) = (self.rtt.as_s_f64(), self.rate.as_bits_per_second() as f64);
        match self.kind {
            Kind::HandshakeLoss => {
                self.cut = Some(Cut {
                    after: Duration::ZERO,
                    lasts: Some(seconds(dice.log(0.5, 4.0))),
                    both: dice.coin(),
                });
                talk.count = Some((dice.log(1.0, 0.3 / rtt_s)) as u64 + 1);
                self.sends = Sends::Talk(talk);
                self.time = seconds(10.0);
            }
            Kind::Outage => {
                let lasts = dice.log(2.0, 6.0);
                self.cut = Some(Cut {
                    after: seconds(dice.even(4.0 * rtt_s, 4.0 * rtt_s + 1.0)),
                    lasts: Some(seconds(lasts)),
                    both: dice.coin(),
                });
                let busy = (4.0 * rtt_s + 1.5).max(lasts / 4.0);
                self.time = seconds(busy + 2.0 * lasts);
                self.sends = match dice.coin() {
                    true => Sends::Once((rate / 8.0 * busy) as u64),
                    false => {
                        talk.count = Some((busy / rtt_s) as u64 + 1);
                        Sends::Talk(talk)
                    }
                };
            }
            Kind::StatefulDrop => {
                self.cut = Some(Cut {
                    after: seconds(dice.even(6.0 * rtt_s, 6.0 * rtt_s + 1.0)),
                    lasts: None,
                    both: dice.coin(),
                });
                self.time = seconds(8.0);
                if dice.coin() {
                    self.sends = Sends::Talk(talk);
                }
            }
            Kind::BlackHole => {
                let above = dice.even(600.0, 1_450.0) as u64;
                talk.request = dice.log(100.0, 400.0) as u64;
                talk.answer = talk.request;
                let way = match dice.coin() {
                    true => {
                        talk.request = dice.log(5_000.0, 100_000.0) as u64;
                        "forward"
                    }
                    false => {
                        talk.answer = dice.log(5_000.0, 100_000.0) as u64;
                        "backward"
                    }
                };
                self.link = format!("{way} = {{ black_hole_above = {above} }}\n");
                self.time = seconds(8.0);
                self.sends = Sends::Talk(talk);
            }
            _ => {}
        }
    }

    /// Both hosts speak.
    pub(crate) const fn is_dialogue(&self) -> bool {
        matches!(
            self.sends,
            Sends::Talk(_) | Sends::UploadDownload { .. } | Sends::Upload
        )
    }

    /// The path never comes back.
    pub(crate) const fn is_broken(&self) -> bool {
        matches!(self.kind, Kind::StatefulDrop | Kind::BlackHole)
    }

    /// Who sends what the kind is about: 0 the near host, 1 the far one.
    pub(crate) fn is_about(&self) -> usize {
        usize::from(self.kind == Kind::BlackHole && self.link.starts_with("backward"))
    }

    /// The path file's text.
    pub(crate) fn path(&self) -> String {
        let mut text = format!("title = \"{}\"\n", self.name);
        for (name, own) in [("near", 0), ("far", 1)] {
            let size = |own: Option<Bytes>| match own {
                Some(most) => {
                    let most = most.as_u64();
                    format!("[\"4096B\", \"{most}B\", \"{most}B\"]")
                }
                None => r#"["4096B", "131072B", "67108864B"]"#.to_owned(),
            };
            let (send, receive) = match own {
                0 => (self.buffers[0], None),
                _ => (None, self.buffers[1]),
            };
            let _ = write!(
                text,
                "[hosts.{name}]\nmtu = 1500\noffloads = {}\ncongestion_control = \"{}\"\n\
                 tcp_rmem = {}\ntcp_wmem = {}\n",
                self.offloads,
                self.congestion,
                size(receive),
                size(send),
            );
        }
        let _ = write!(
            text,
            "[links.wan]\nbetween = [\"near\", \"far\"]\nrate = \"{}b/s\"\ndelay = \"{}ns\"\n\
             queue = \"{}B\"\n{}",
            self.rate.as_bits_per_second(),
            self.rtt.as_ns() / 2,
            self.queue.as_u64(),
            self.link,
        );
        text
    }
}

/// splitmix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64, kind: u64, number: u64) -> Self {
        let mut dice = Self(seed ^ (kind << 48) ^ (number << 32));
        // The first numbers of neighbouring states are alike to nobody.
        dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly between the two.
    pub(crate) fn even(&mut self, low: f64, high: f64) -> f64 {
        let share = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        low + (high - low) * share
    }

    /// Evenly in the logarithm.
    pub(crate) fn log(&mut self, low: f64, high: f64) -> f64 {
        self.even(low.ln(), high.max(low).ln()).exp()
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }
}

fn seconds(s: f64) -> Duration {
    Duration::from_ns((s * 1e9) as u64)
}

fn bits(rate: f64) -> Rate {
    Rate::from_bits_per_second(rate as u64)
}

fn bytes(count: f64) -> Bytes {
    Bytes::new(count as u64)
}

/// Payload of a full segment with timestamps.
const FRAME: f64 = 1_448.0;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lab::PathFile;

    use super::*;

    #[test]
    fn every_draw_is_a_path_and_the_same_one_again() {
        for kind in Kind::ALL {
            for number in 0..50 {
                let plan = Plan::draw(kind, number, 7);
                let path = PathFile::parse(Path::new("x.toml"), &plan.path());
                path.unwrap_or_else(|e| panic!("{}: {e}\n{}", plan.name, plan.path()));
                assert_eq!(plan, Plan::draw(kind, number, 7));
                assert_ne!(plan.rtt, Plan::draw(kind, number, 8).rtt);
            }
        }
    }
}
