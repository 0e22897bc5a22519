//! One connection in the lab, captured at both hosts.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant as Wall;

use anyhow::Context as _;
use capture::live::Live;
use capture::{About, CaptureError, Format, Options, Output, Place, Rotation, Stamps};
use link::Change;
use units::{Bytes, Duration};
use wire::filter::{Filter, Way};
use wire::tcp_info::TcpInfo;

use super::dialogue;
use super::plan::{Dice, Kind, Plan, Sends};
use crate::bench::site::{End, INTERFACE, Site};

/// What the sender's kernel says of the connection at its end, and the captures.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) info: TcpInfo,
    /// Packets that the captures missed.
    pub(crate) missed: u64,
}

/// Makes the connection; captures go to `folder`.
pub(crate) fn make(plan: &Plan, folder: &Path, seed: u64) -> anyhow::Result<Made> {
    let site = Site::lab(&plan.path())?;
    let ends = [site.near(), site.far()];
    let files = ["near", "far"].map(|end| folder.join(format!("{}-{end}.pcapng", plan.name)));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut captures = Vec::new();
        for (end, file) in ends.iter().zip(&files) {
            let (ready, opened) = mpsc::channel();
            let stop = &stop;
            captures.push(scope.spawn(move || capture(end, file, stop, &ready)));
            opened.recv().ok().context("a capture did not begin")?;
        }
        let info = cut_and_connect(plan, &site, seed);
        // What is on its way arrives.
        thread::sleep((plan.rtt + SETTLE).to_std());
        stop.store(true, Ordering::Relaxed);
        let mut missed = 0;
        for capture in captures {
            missed += capture.join().ok().context("a capture panicked")??;
        }
        Ok(Made {
            info: info?,
            missed,
        })
    })
}

/// Connects, with the path cut when that is planned.
fn cut_and_connect(plan: &Plan, site: &Site, seed: u64) -> anyhow::Result<TcpInfo> {
    let ends = [site.near(), site.far()];
    let Some(cut) = plan.cut else {
        return connection(plan, &ends, seed);
    };
    let lab = site.as_lab().context("no lab")?;
    let open = move |is_open| lab.set("wan", cut.both, true, Change::Up(is_open));
    if cut.after == Duration::ZERO {
        open(false)?;
    }
    thread::scope(|scope| {
        let cutter = scope.spawn(move || {
            thread::sleep(cut.after.to_std());
            open(false)?;
            cut.lasts.map_or(Ok(()), |lasts| {
                thread::sleep(lasts.to_std());
                open(true)
            })
        });
        let info = connection(plan, &ends, seed);
        cutter.join().ok().context("who cuts the path panicked")??;
        info
    })
}

fn capture(
    end: &End<'_>,
    file: &Path,
    stop: &AtomicBool,
    ready: &mpsc::Sender<()>,
) -> anyhow::Result<u64> {
    end.run(|| -> Result<u64, CaptureError> {
        let options = Options {
            interface: INTERFACE.into(),
            filter: Filter::parse("tcp").expect("a filter"),
            kept_bytes: KEPT_BYTES,
            way: Way::Both,
            promiscuous: false,
            ring: Bytes::new(RING_BYTES),
            stamps: Stamps::Kernel,
            limits: capture::Limits::default(),
        };
        let live = Live::open(&options)?;
        let place = Place::File(file.to_owned());
        let mut out = Output::new(
            place,
            Format::Pcapng,
            Rotation::default(),
            true,
            About::default(),
        );
        let _ = ready.send(());
        let captured = live.run(&mut out, &|| stop.load(Ordering::Relaxed), &mut |_| {})?;
        Ok(captured.total.dropped)
    })?
    .context("capturing")
}

fn connection(plan: &Plan, ends: &[End<'_>; 2], seed: u64) -> anyhow::Result<TcpInfo> {
    let [near, far] = ends;
    let address = SocketAddr::from((far.address(), PORT));
    let listener = far.run(|| TcpListener::bind(address))??;
    // The kernel may keep another default in a namespace: what was drawn is told to the socket, before it
    // begins.
    let prepare = |fd: BorrowedFd<'_>| {
        sys::tcp::set_congestion(fd, plan.congestion)?;
        plan.pacing
            .map_or(Ok(()), |rate| sys::tcp::set_max_pacing(fd, rate))
    };
    let connect = || sys::tcp::connect_many(address, 1, LIMIT, prepare, || false);
    let sender = near.run(connect)??.pop().context("no connection")?;
    let (receiver, _) = listener.accept()?;
    sys::tcp::set_congestion(receiver.as_fd(), plan.congestion)?;
    // No shorter: a write that gives up and is tried again goes on by that clock and not when there is room.
    let limit = if plan.is_broken() { plan.time } else { LIMIT };
    for socket in [&sender, &receiver] {
        socket.set_nodelay(plan.kind != Kind::Nagle)?;
        socket.set_write_timeout(Some(limit.to_std()))?;
        socket.set_read_timeout(Some(limit.to_std()))?;
    }
    let (looked, look) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let end = match plan.is_dialogue() {
                true => dialogue::take_part(plan, false, &receiver, seed),
                false => read(plan, &receiver),
            };
            // The sender looks at its counters while the connection is still there.
            let _ = look.recv_timeout(LIMIT.to_std());
            end
        });
        let sent = match plan.is_dialogue() {
            true => dialogue::take_part(plan, true, &sender, seed).map_err(anyhow::Error::from),
            false => send(plan, &sender, seed),
        };
        if plan.is_broken() {
            // Neither gets anything that ends it.
            let info = sys::tcp::tcp_info(sender.as_fd());
            drop(looked);
            let _ = reader.join().ok().context("the reader panicked")?;
            return Ok(info?);
        }
        let _ = sender.shutdown(std::net::Shutdown::Write);
        let info = settled(&sender);
        drop(looked);
        reader.join().ok().context("the reader panicked")??;
        sent?;
        info
    })
}

/// The counters once all is acknowledged.
fn settled(sender: &TcpStream) -> anyhow::Result<TcpInfo> {
    let begun = Wall::now();
    loop {
        let info = sys::tcp::tcp_info(sender.as_fd())?;
        if info.unacked_segments == 0 && info.notsent_bytes == 0 || begun.elapsed() > LIMIT.to_std()
        {
            return Ok(info);
        }
        thread::sleep(POLL.to_std());
    }
}

/// Reads to the end, as fast as planned.
pub(super) fn read(plan: &Plan, mut receiver: &TcpStream) -> io::Result<()> {
    let begun = Wall::now();
    let mut buffer = vec![0_u8; READ_BYTES];
    let (mut had, mut answer) = (0_u64, 0_u64);
    if let Sends::Answers { .. } = plan.sends {
        receiver.write_all(&[1])?;
    }
    loop {
        let part = match plan.reads {
            // Some hundred reads a second.
            Some(rate) => {
                (rate.as_bits_per_second() / 8 / 200).clamp(512, READ_BYTES as u64) as usize
            }
            None => READ_BYTES,
        };
        let n = match receiver.read(&mut buffer[..part]) {
            Ok(0) => return Ok(()),
            Ok(n) => n as u64,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        had += n;
        if let Some(rate) = plan.reads {
            // After the time planned the rest is taken as it comes.
            let due = had as f64 * 8.0 / rate.as_bits_per_second() as f64;
            let now = begun.elapsed().as_secs_f64();
            if now < plan.time.as_s_f64() && due > now {
                thread::sleep(std::time::Duration::from_secs_f64(due - now));
            }
        }
        if let Sends::Answers { bytes, .. } = plan.sends {
            answer += n;
            if answer >= bytes {
                answer -= bytes;
                // Nobody is there to answer the last one.
                let _ = receiver.write_all(&[1]);
            }
        }
    }
}

/// Sends as planned, for the planned time.
fn send(plan: &Plan, sender: &TcpStream, seed: u64) -> anyhow::Result<()> {
    let until = Wall::now() + plan.time.to_std();
    let data = vec![0x67_u8; WRITE_BYTES];
    let put = |bytes: u64| -> io::Result<bool> {
        let mut left = bytes;
        while left > 0 {
            if Wall::now() >= until {
                return Ok(false);
            }
            match (&*sender).write(&data[..left.min(WRITE_BYTES as u64) as usize]) {
                Ok(n) => left -= n as u64,
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    };
    let sleep = |time: f64| thread::sleep(std::time::Duration::from_secs_f64(time));
    match plan.sends {
        Sends::Bulk => while put(WRITE_BYTES as u64)? {},
        Sends::Once(bytes) => {
            put(bytes)?;
        }
        Sends::Lumps { bytes, every } => {
            let mut next = Wall::now();
            while put(bytes)? {
                next += every.to_std();
                thread::sleep(next.saturating_duration_since(Wall::now()));
            }
        }
        Sends::Answers { bytes, think } => {
            let mut request = [0_u8; 1];
            loop {
                let mut asked = sender;
                asked.read_exact(&mut request)?;
                sleep(think.as_s_f64());
                if !put(bytes)? {
                    break;
                }
            }
        }
        Sends::Trickle { bytes, pause } => {
            let mut dice = Dice::new(seed, 99, 0);
            loop {
                let message = dice.even(1.0, 2.0 * bytes as f64) as u64;
                if !put(message)? {
                    break;
                }
                sleep(dice.even(0.0, 2.0 * pause.as_s_f64()));
            }
        }
        // See `dialogue`.
        Sends::Talk(_) | Sends::UploadDownload { .. } | Sends::Upload => {}
    }
    Ok(())
}

const PORT: u16 = 5_230;
const READ_BYTES: usize = 65_536;
const WRITE_BYTES: usize = 65_536;
/// Headers of all kinds.
const KEPT_BYTES: u32 = 128;
const RING_BYTES: u64 = 16 << 20;
const POLL: Duration = Duration::from_ms(20);
/// For what should take a moment; draining the longest queue takes some.
const LIMIT: Duration = Duration::from_s(20);
const SETTLE: Duration = Duration::from_ms(100);
