//! What both hosts do where both speak: the client at the near host, the server at the far one.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::plan::{Dice, Plan, Sends, Talk};

/// One end of a dialogue: does its part until all is said or the time is over, then closes its direction.
///
/// # Errors
/// As read(2) and write(2), except where the path is broken by plan: then the time is over with the first that fails.
pub(super) fn take_part(
    plan: &Plan,
    is_client: bool,
    mut socket: &TcpStream,
    seed: u64,
) -> io::Result<()> {
    let until = Instant::now() + plan.time.to_std();
    let said = match (plan.sends, is_client) {
        (Sends::Talk(talk), true) => ask(talk, socket, until, seed),
        (Sends::Talk(talk), false) => answer(talk, socket, seed),
        (Sends::UploadDownload { bytes }, true) => {
            put(socket, bytes).and_then(|()| discard(socket, u64::MAX).map(drop))
        }
        (Sends::UploadDownload { bytes }, false) => {
            discard(socket, bytes).and_then(|_| fill(socket, until))
        }
        (_, true) => (0..LOGIN)
            .try_for_each(|_| put(socket, SMALL).and_then(|()| discard(socket, SMALL).map(drop)))
            .and_then(|()| fill(socket, until)),
        (_, false) => (0..LOGIN)
            .try_for_each(|_| discard(socket, SMALL).and_then(|_| put(socket, SMALL)))
            .and_then(|()| super::transfer::read(plan, socket)),
    };
    if said.is_err() && plan.is_broken() {
        return Ok(());
    }
    said?;
    socket.flush()?;
    match socket.shutdown(Shutdown::Write) {
        Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(()),
        other => other,
    }
}

fn ask(talk: Talk, mut socket: &TcpStream, until: Instant, seed: u64) -> io::Result<()> {
    let mut dice = Dice::new(seed, 98, talk.request);
    let mut asked = 0;
    while Instant::now() < until && talk.count.is_none_or(|count| asked < count) {
        let first = talk.first.unwrap_or(0);
        if first > 0 {
            put(socket, first)?;
            socket.flush()?;
        }
        put(socket, talk.request - first)?;
        discard(socket, talk.answer)?;
        think(talk.think[0], &mut dice);
        asked += 1;
    }
    Ok(())
}

fn answer(talk: Talk, socket: &TcpStream, seed: u64) -> io::Result<()> {
    let mut dice = Dice::new(seed, 97, talk.answer);
    while discard(socket, talk.request)? == talk.request {
        think(talk.think[1], &mut dice);
        put(socket, talk.answer)?;
    }
    Ok(())
}

fn think(mean: units::Duration, dice: &mut Dice) {
    if mean > units::Duration::ZERO {
        thread::sleep(Duration::from_secs_f64(
            mean.as_s_f64() * dice.even(0.5, 1.5),
        ));
    }
}

fn put(mut socket: &TcpStream, bytes: u64) -> io::Result<()> {
    let data = [0x67; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        socket.write_all(&data[..part])?;
        left -= part as u64;
    }
    Ok(())
}

/// As much as goes.
fn fill(socket: &TcpStream, until: Instant) -> io::Result<()> {
    while Instant::now() < until {
        put(socket, CHUNK as u64)?;
    }
    Ok(())
}

/// Reads so many bytes; how many came before the end.
fn discard(mut socket: &TcpStream, bytes: u64) -> io::Result<u64> {
    let mut data = [0; CHUNK];
    let mut had = 0;
    while had < bytes {
        let part = usize::try_from(bytes - had).unwrap_or(CHUNK).min(CHUNK);
        match socket.read(&mut data[..part])? {
            0 => break,
            n => had += n as u64,
        }
    }
    Ok(had)
}

const CHUNK: usize = 65_536;
/// Small requests before an upload.
const LOGIN: u32 = 3;
const SMALL: u64 = 64;
