//! Copies a folder into another, both ends in this process, over connections that are made here:
//! `cargo run -p goodput-copy --example two_ends -- FROM/ TO`.
//!
//! Between two hosts, each end runs its half, and the secret goes from one to the other where nobody else reads it.

use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use copy::engine::Watch;
use copy::link::Socket;
use copy::message::Account;
use copy::{Progress, Session};

/// Copies `from` to `to`, and shows how far it is, first and last included.
///
/// # Errors
/// What either end says.
pub(crate) fn run(
    from: &Path,
    to: &Path,
    mut show: impl FnMut(Progress),
) -> Result<Account, Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?;
    let session = Session::new()?;
    let secret = session.secret();

    // The end that connects: it may bind, mark or pace its sockets as it likes.
    let near = session.connects(Box::new(move || {
        let socket = TcpStream::connect(at)?;
        socket.set_nodelay(true)?;
        Ok(Socket::Tcp(socket))
    }));
    // The end that listens knows the secret and nothing else.
    let far = Session::of_secret(&secret).ok_or("no secret")?.listens();

    let (near_watch, far_watch) = (Watch::default(), Watch::default());
    thread::scope(|scope| {
        scope.spawn(|| copy::meeting::listen(&listener, &far));
        let received = scope.spawn(|| copy::receive_tree(&far, to, &far_watch));
        let sent = scope.spawn(|| copy::send_tree(&near, from, &near_watch));
        while !sent.is_finished() && !received.is_finished() {
            show(near_watch.progress());
            thread::sleep(Duration::from_millis(20));
        }
        // An end that fails takes the other with it.
        if received.is_finished() {
            near.hurry(Duration::from_secs(1));
        }
        let sent = sent.join().map_err(|_| "the source panicked")?;
        if sent.is_err() {
            far_watch.stop();
        }
        received.join().map_err(|_| "the destination panicked")??;
        show(near_watch.progress());
        Ok(sent?)
    })
}

/// What is run as a program.
#[allow(dead_code, reason = "a test calls `run` alone")]
fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(from), Some(to)) = (args.next(), args.next()) else {
        return Err("say from where, and where to".into());
    };
    let account = run(from.as_ref(), to.as_ref(), |now| {
        eprint!(
            "\r{} of {} bytes, {} files ",
            now.confirmed_bytes, now.wanted_bytes, now.placed
        );
    })?;
    eprintln!();
    println!(
        "{} files placed, {} bytes received, {} were there already",
        account.placed, account.received_bytes, account.same
    );
    Ok(())
}
