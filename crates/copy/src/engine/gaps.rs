//! Dynamic gap control of a copy's streams: all of them together are held just under what the path takes.
//!
//! A congestion control that knows no rate (CUBIC, Reno) finds it by filling a queue until something is lost. The streams of
//! one sender have one control instead ([`tcp::gap_control`]), which is given the sums of what they deliver; what it finds is
//! shared out as ceilings (`SO_MAX_PACING_RATE`, socket(7)). A stream that carries less than its part for a while, since it lost
//! something, leaves the rest to the others.

use std::os::fd::AsFd as _;
use std::thread;
use std::time::Duration;

use ::tcp::gap_control::{GapControl, Phase};
use ::tcp::gap_sums::Sums;
use wire::tcp_info::TcpInfo;

use crate::link::Which;
use crate::meeting::{LONG, Meeting, tcp_info};

use super::tune::{FILLS, LONG_STREAMS, Loaded, Streams};
use super::{Note, Watch};

/// Whether streams are held just under what the path takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// Where the path is long, the streams' congestion control knows no rate, and their number was set below what a long path
    /// is given: many find the rate among themselves (16 of CUBIC carried no more when they were paced, 4 carried a tenth more).
    #[default]
    Chosen,
    /// Whatever the path and the congestion control.
    Even,
    /// Never.
    Off,
}

/// Keeps the streams under what the path takes, until the session is over.
pub(super) fn control(
    meeting: &Meeting,
    watch: &Watch,
    load: &dyn Loaded,
    pacing: Pacing,
    streams: Streams,
) {
    let is_few = matches!(streams, Streams::Fixed(n) if n < LONG_STREAMS);
    let Some(name) = fitting(meeting, pacing, is_few) else {
        return;
    };
    let now = sys::clock::monotonic();
    let mut control = GapControl::new(now.as_ns());
    let mut sums = Sums::new(now);
    let mut is_told = false;
    while !meeting.is_over() {
        let infos: Vec<(u16, TcpInfo)> = infos(meeting);
        let now = sys::clock::monotonic();
        if !infos.is_empty() {
            let mut reading = sums.reading(now, &infos);
            reading.held_up |= !load.is_loaded();
            let ceiling = control.on_reading(now, &reading);
            if !is_told && control.phase() == Phase::Hold {
                is_told = true;
                watch.note(Note::Chosen(format!(
                    "streams are paced just under what the path is found to carry: {name} knows no rate, and fills a queue \
                     until something is lost"
                )));
            }
            if let Some(rate) = ceiling {
                for (stream, rate) in sums.shared_out(rate) {
                    meeting.of_socket(Which::Blocks(stream), |socket| {
                        let _ = sys::tcp::set_max_pacing(socket.as_fd(), rate);
                    });
                }
            }
        }
        thread::sleep(Duration::from_nanos(control.interval().as_ns()));
    }
    if let (true, Some(found)) = (is_told, control.found()) {
        watch.note(Note::Chosen(format!(
            "the pace at the end: just under {found}, all streams together"
        )));
    }
}

/// Waits for the first stream; its congestion control, if it is to be paced.
fn fitting(meeting: &Meeting, pacing: Pacing, is_few: bool) -> Option<String> {
    let first = Which::Blocks(0);
    while !meeting.is_over() {
        let found = meeting.of_socket(first, |socket| {
            tcp_info(socket).and_then(|_| sys::tcp::congestion(socket.as_fd()).ok())
        });
        match found {
            None => thread::sleep(Duration::from_millis(10)),
            // Pipes are nobody's to pace.
            Some(None) => return None,
            Some(Some(name)) => {
                let is_long = meeting.round_trip()? >= LONG;
                let is_fitting = match pacing {
                    Pacing::Chosen => is_long && is_few && name != FILLS,
                    Pacing::Even => true,
                    Pacing::Off => false,
                };
                return is_fitting.then_some(name);
            }
        }
    }
    None
}

fn infos(meeting: &Meeting) -> Vec<(u16, TcpInfo)> {
    let links = meeting.open_links().into_iter();
    links
        .filter_map(|which| match which {
            Which::Blocks(n) => Some((n, meeting.of_socket(which, tcp_info)??)),
            Which::FromSource | Which::FromDestination => None,
        })
        .collect()
}
