//! Answers `GET /metrics`, and nothing else, for collectors that read OpenMetrics.
//!
//! As little HTTP as that takes (RFC 1945): one request a connection, of which the first line counts,
//! one answer, closed. No TLS and no password: it listens where it is told to, and nowhere by default.

use std::io::{self, ErrorKind, Read};
use std::net::{TcpListener, TcpStream};

use rustix::event::{PollFd, PollFlags, poll};
use sys::clock;
use tracing::{debug, warn};
use units::{Duration, Instant};

use crate::Stop;
use crate::control::farewell;
use crate::wait::{TICK, timespec};

/// One that asks.
#[derive(Debug)]
struct Visitor {
    stream: TcpStream,
    request: Vec<u8>,
    deadline: Instant,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Its end has not come.
    More,
    Metrics,
    /// `HEAD /metrics`.
    Head,
    OtherPath,
    OtherMethod,
    /// Not HTTP, or longer than anybody needs.
    Nonsense,
}

/// Answers with what `text` says by then, until `stop`. The listener does not block.
pub fn serve(listener: &TcpListener, text: &dyn Fn() -> String, stop: &Stop) {
    let mut visitors: Vec<Visitor> = Vec::new();
    while !stop.is_stopped() {
        if let Err(error) = wait(listener, &visitors) {
            return warn!(%error, "no metrics any more");
        }
        accept(listener, &mut visitors);
        let now = clock::monotonic();
        visitors.retain_mut(|visitor| now < visitor.deadline && visitor.is_to_stay(text));
    }
}

fn wait(listener: &TcpListener, visitors: &[Visitor]) -> io::Result<()> {
    let visitors = visitors.iter().map(|v| &v.stream);
    let visitors = visitors.map(|s| PollFd::new(s, PollFlags::IN));
    let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
    fds.extend(visitors);
    match poll(&mut fds, Some(&timespec(TICK))) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn accept(listener: &TcpListener, visitors: &mut Vec<Visitor>) {
    for _ in 0..VISITORS_MAX {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => {
                debug!(%error, "accept failed");
                return std::thread::sleep(ACCEPT_PAUSE);
            }
        };
        if stream.set_nonblocking(true).is_err() {
            continue;
        }
        if visitors.len() >= VISITORS_MAX {
            visitors.remove(0);
        }
        visitors.push(Visitor {
            stream,
            request: Vec::new(),
            deadline: clock::monotonic() + PATIENCE,
        });
    }
}

impl Visitor {
    /// Reads what has come and answers a whole request; false when the visit is over.
    fn is_to_stay(&mut self, text: &dyn Fn() -> String) -> bool {
        let mut chunk = [0; 1024];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return false,
                Ok(n) => self.request.extend_from_slice(&chunk[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            let asked = asked(&self.request);
            if asked != Asked::More {
                farewell(&self.stream, &answer(asked, text));
                return false;
            }
        }
    }
}

/// What the bytes so far ask for.
fn asked(request: &[u8]) -> Asked {
    let ended = |end: &[u8]| request.windows(end.len()).any(|w| w == end);
    if request.len() > REQUEST_BYTES_MAX {
        return Asked::Nonsense;
    }
    if !ended(b"\r\n\r\n") && !ended(b"\n\n") {
        return Asked::More;
    }
    let line = request.split(|&b| b == b'\n').next().unwrap_or_default();
    let line = str::from_utf8(line).unwrap_or_default();
    let mut words = line.split_ascii_whitespace();
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Asked::Nonsense;
    };
    let path = target.split('?').next().unwrap_or_default();
    match (method, path) {
        _ if !version.starts_with("HTTP/1.") => Asked::Nonsense,
        ("GET", "/metrics") => Asked::Metrics,
        ("HEAD", "/metrics") => Asked::Head,
        ("GET" | "HEAD", _) => Asked::OtherPath,
        _ => Asked::OtherMethod,
    }
}

fn answer(asked: Asked, text: &dyn Fn() -> String) -> Vec<u8> {
    let (status, kind, body) = match asked {
        Asked::Metrics | Asked::Head => ("200 OK", OPENMETRICS, text()),
        Asked::OtherPath => (
            "404 Not Found",
            PLAIN,
            "There is /metrics only.\n".to_owned(),
        ),
        Asked::OtherMethod => ("405 Method Not Allowed", PLAIN, "GET only.\n".to_owned()),
        Asked::More | Asked::Nonsense => ("400 Bad Request", PLAIN, "Not a request.\n".to_owned()),
    };
    let allow = if asked == Asked::OtherMethod {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: \
         close\r\n\r\n"
    );
    let body = if asked == Asked::Head { "" } else { &body };
    (head + body).into_bytes()
}

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
/// A collector sends some 300 bytes.
const REQUEST_BYTES_MAX: usize = 4096;
/// A collector and its spare; one more costs the oldest its place.
const VISITORS_MAX: usize = 4;
/// From the connection to the end of the request.
const PATIENCE: Duration = Duration::from_s(2);
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_for_the_metrics_or_refused() {
        for (request, meaning) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Asked::Metrics),
            ("GET /metrics?a=b HTTP/1.0\n\n", Asked::Metrics),
            ("HEAD /metrics HTTP/1.0\r\n\r\n", Asked::Head),
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n", Asked::More),
            ("", Asked::More),
            ("GET / HTTP/1.1\r\n\r\n", Asked::OtherPath),
            ("GET /metrics/ HTTP/1.1\r\n\r\n", Asked::OtherPath),
            ("POST /metrics HTTP/1.1\r\n\r\n", Asked::OtherMethod),
            ("GET /metrics HTTP/2\r\n\r\n", Asked::Nonsense),
            ("GET /metrics\r\n\r\n", Asked::Nonsense),
            ("\r\n\r\n", Asked::Nonsense),
        ] {
            assert_eq!(asked(request.as_bytes()), meaning, "{request:?}");
        }
        assert_eq!(asked(b"\xff\xff\n\n"), Asked::Nonsense);
    }

    #[test]
    fn a_request_has_at_most_4096_bytes() {
        let long = |len: usize| {
            let mut request = b"GET /metrics HTTP/1.1\r\nX: ".to_vec();
            request.resize(len - 4, b'x');
            request.extend(b"\r\n\r\n");
            request
        };
        assert_eq!(asked(&long(4096)), Asked::Metrics);
        assert_eq!(asked(&long(4097)), Asked::Nonsense);
        assert_eq!(asked(&long(4096)[..4095]), Asked::More);
    }

    #[test]
    fn only_a_get_has_a_body() {
        let tally = crate::tally::Tally::default();
        let text = |asked| String::from_utf8(answer(asked, &|| tally.openmetrics())).unwrap();
        assert!(text(Asked::Metrics).ends_with("# EOF\n"));
        assert!(text(Asked::Head).ends_with("\r\n\r\n"));
        assert!(text(Asked::OtherMethod).contains("Allow: GET"));
    }
}
