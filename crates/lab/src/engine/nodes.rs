//! What becomes of segments at a switch or router: rules, versions, answers.

use link::{DropCause, Release};
use units::Instant;
use wire::classify::Fields;
use wire::rewrite;
use wire::train::Protocol;

use super::{ANSWER_BYTES_MAX, Engine, Node, Run};
use crate::node::{Routing, Ruling};

impl Engine {
    /// Segments have come to a switch.
    pub(super) fn at_switch(&mut self, way: usize, release: Release) {
        let node = self.directions[way].to;
        let tag = self.frames.tag(release.handle);
        let seen = &self.directions[way].seen;
        let rules = match &self.nodes[node] {
            Node::Switch(switch) => (!switch.rules.is_empty(), switch.rules.counts()),
            _ => (false, false),
        };
        if seen.frame == tag.number && seen.handle == release.handle && !rules.1 {
            let to = std::mem::take(&mut self.directions[way].seen.to);
            let handle = self.directions[way].seen.version.unwrap_or(release.handle);
            self.spread(way, release, handle, &to);
            self.directions[way].seen.to = to;
            return;
        }
        let fields = self.frames.fields(release.handle);
        let mut to = std::mem::take(&mut self.to);
        if let Node::Switch(switch) = &mut self.nodes[node] {
            switch.forward(&fields, way ^ 1, &mut to);
        }
        if rules.0 {
            self.by_the_rules(way, release, &fields, &to, rules.1);
        } else {
            self.spread(way, release, release.handle, &to);
            self.remember(way, tag.number, release.handle, &to, None);
        }
        self.to = to;
    }

    /// Applies a switch's rules before its own decision `to`.
    fn by_the_rules(
        &mut self,
        way: usize,
        release: Release,
        fields: &Fields,
        to: &[usize],
        each: bool,
    ) {
        let node = self.directions[way].to;
        let step = if each { 1 } else { release.count };
        let mut first = release.first;
        while first < release.first + release.count {
            let part = Release {
                first,
                count: step,
                ..release
            };
            first += step;
            let ruling = match &mut self.nodes[node] {
                Node::Switch(switch) => switch.rules.rule(fields, way, step),
                Node::Router(router) => router.rules.rule(fields, way, step),
                Node::Port(_) => Ruling::default(),
            };
            if ruling.dropped.is_some() {
                self.lose_release(way, part, part.handle, DropCause::Filtered);
                continue;
            }
            let handle = self.rewritten(part.handle, part.count, &ruling);
            let mut to = ruling.to.unwrap_or_else(|| to.to_vec());
            to.extend(&ruling.mirrors);
            // Never back where it came from: two switches would play ball for ever.
            to.retain(|&next| next != way ^ 1);
            self.spread(way, part, handle, &to);
            if handle != part.handle {
                self.frames.close(handle);
            }
        }
    }

    /// Another version of the frame where rules change it; the segments are the version's then.
    fn rewritten(&mut self, handle: u64, count: u16, ruling: &Ruling) -> u64 {
        if ruling.rewrites.is_empty() {
            return handle;
        }
        self.frames.change(handle, count, |header, partial| {
            for rewrite in &ruling.rewrites {
                rewrite.apply(header, partial);
            }
        })
    }

    /// Keeps what was decided on a frame for its other segments.
    pub(super) fn remember(
        &mut self,
        way: usize,
        frame: u64,
        handle: u64,
        to: &[usize],
        version: Option<u64>,
    ) {
        if let Some(old) = self.directions[way].seen.version.take() {
            self.frames.close(old);
        }
        let seen = &mut self.directions[way].seen;
        seen.frame = frame;
        seen.handle = handle;
        seen.to.clear();
        seen.to.extend_from_slice(to);
        seen.version = version;
    }

    /// Sends segments on by several directions, or by none. `handle` owns the segments already.
    fn spread(&mut self, way: usize, release: Release, handle: u64, to: &[usize]) {
        let Some((_, others)) = to.split_first() else {
            self.lose_release(way, release, handle, DropCause::NoRoute);
            return;
        };
        for _ in others {
            self.frames.retain(handle, release.count);
        }
        for &next in to {
            self.pass_to(next, release, handle);
        }
    }

    /// Sends segments down the next link. Boxes there change a version of their own: the frame may be
    /// on its way elsewhere too.
    pub(super) fn pass_to(&mut self, next: usize, release: Release, handle: u64) {
        if self.directions[next].middleboxes.is_empty() {
            self.enter(next, handle, Run::of(&release));
            return;
        }
        let version = self.frames.change(handle, release.count, |_, _| {});
        self.enter(next, version, Run::of(&release));
        self.frames.close(version);
    }

    /// Segments have come to a router.
    pub(super) fn at_router(&mut self, way: usize, release: Release) {
        let node = self.directions[way].to;
        let tag = self.frames.tag(release.handle);
        let Node::Router(router) = &self.nodes[node] else {
            return;
        };
        let (has_rules, each) = (!router.rules.is_empty(), router.rules.counts());
        let seen = &self.directions[way].seen;
        let known = seen.frame == tag.number && seen.handle == release.handle;
        if known && !has_rules && !seen.to.is_empty() {
            let (to, version) = (seen.to[0], seen.version);
            let handle = version.unwrap_or(release.handle);
            if let Some(version) = version {
                self.frames
                    .hand_over(release.handle, version, release.count);
            }
            self.pass_to(to, release, handle);
            return;
        }
        let fields = self.frames.fields(release.handle);
        if !has_rules {
            if let Some((out, version)) = self.route(way, release, release.handle, &fields) {
                let frame = self.frames.frame(release.handle);
                // That a short last segment fits says nothing of the others.
                if frame.segment_frame_bytes(release.first) == frame.segment_bytes_full() {
                    self.remember(way, tag.number, release.handle, &[out], Some(version));
                    self.pass_to(out, release, version);
                } else {
                    self.pass_to(out, release, version);
                    self.frames.close(version);
                }
            }
            return;
        }
        let step = if each { 1 } else { release.count };
        for first in (release.first..release.first + release.count).step_by(step.into()) {
            let part = Release {
                first,
                count: step,
                ..release
            };
            let ruling = match &mut self.nodes[node] {
                Node::Router(router) => router.rules.rule(&fields, way, step),
                _ => Ruling::default(),
            };
            self.route_by_ruling(way, part, &fields, ruling);
        }
    }

    /// What a router does with segments after its rules have spoken: what they rewrite is routed as
    /// rewritten, what they send somewhere goes there, mirrored copies go as they are.
    fn route_by_ruling(&mut self, way: usize, part: Release, fields: &Fields, ruling: Ruling) {
        if ruling.dropped.is_some() {
            self.lose_release(way, part, part.handle, DropCause::Filtered);
            return;
        }
        for &mirror in &ruling.mirrors {
            self.frames.retain(part.handle, part.count);
            self.pass_aged(way, mirror, part, part.handle);
        }
        let handle = self.rewritten(part.handle, part.count, &ruling);
        if let Some((&last, others)) = ruling.to.as_ref().and_then(|to| to.split_last()) {
            for &next in others {
                self.frames.retain(handle, part.count);
                self.pass_aged(way, next, part, handle);
            }
            self.pass_aged(way, last, part, handle);
        } else {
            let fields = if handle == part.handle {
                *fields
            } else {
                self.frames.fields(handle)
            };
            if let Some((out, version)) = self.route(way, part, handle, &fields) {
                self.pass_to(out, part, version);
                self.frames.close(version);
            }
        }
        if handle != part.handle {
            self.frames.close(handle);
        }
    }

    /// Sends segments where a router's rule says, a hop older, so that rules that send in a circle end
    /// as routes do.
    fn pass_aged(&mut self, way: usize, next: usize, part: Release, handle: u64) {
        let ttl = self.frames.fields(handle).ttl;
        if ttl <= 1 {
            self.lose_release(way, part, handle, DropCause::TtlExceeded);
            return;
        }
        let version = self.frames.change(handle, part.count, |header, _| {
            rewrite::decrement_ttl(header, 1);
        });
        self.pass_to(next, part, version);
        self.frames.close(version);
    }

    /// Routes segments: the direction by which they leave and the version that owns them then. `None`
    /// when they end here; answers or fragments are on their way then.
    fn route(
        &mut self,
        way: usize,
        release: Release,
        handle: u64,
        fields: &Fields,
    ) -> Option<(usize, u64)> {
        let node = self.directions[way].to;
        let interfaces = match &self.nodes[node] {
            Node::Router(router) => &router.interfaces[..],
            _ => &[],
        };
        let Some(at) = interfaces.iter().position(|i| i.out == way ^ 1) else {
            self.lose_release(way, release, handle, DropCause::NoRoute);
            return None;
        };
        let mut answer = [0_u8; ANSWER_BYTES_MAX];
        let routing = self.decide(node, fields, release, handle, at, &mut answer);
        match routing {
            Routing::Ignore => {
                self.lose_release(way, release, handle, DropCause::NoRoute);
                None
            }
            Routing::Consumed { answer: len } => {
                self.frames.release(handle, release.count);
                self.answer(way ^ 1, &answer, len, release.last_at);
                None
            }
            Routing::Drop { cause, answer: len } => {
                self.lose_release(way, release, handle, cause);
                self.answer(way ^ 1, &answer, len, release.last_at);
                None
            }
            Routing::Forward {
                interface,
                to_mac,
                fragments_of,
            } => {
                let Node::Router(router) = &self.nodes[node] else {
                    return None;
                };
                let leaving = &router.interfaces[interface];
                let (out, mac) = (leaving.out, leaving.mac);
                let version = self.frames.change(handle, release.count, |header, _| {
                    rewrite::set_source_mac(header, mac);
                    rewrite::set_destination_mac(header, to_mac);
                    rewrite::decrement_ttl(header, 1);
                });
                if let Some(mtu) = fragments_of {
                    self.pass_in_fragments(way, out, release, version, mtu);
                    self.frames.close(version);
                    return None;
                }
                Some((out, version))
            }
        }
    }

    /// What the router says of the segments.
    fn decide(
        &mut self,
        node: usize,
        fields: &Fields,
        release: Release,
        handle: u64,
        at: usize,
        answer: &mut [u8],
    ) -> Routing {
        let frame = self.frames.frame(handle);
        let l3 = frame
            .segment_frame_bytes(release.first)
            .saturating_sub(u32::try_from(frame.network_offset()).unwrap_or(14));
        let stored = self.frames.stored(handle);
        let bytes = match self.frames.changed(handle) {
            Some(header) if frame.protocol() == Protocol::Icmp => {
                // To be answered the message must be whole.
                self.scratch.clear();
                self.scratch.extend_from_slice(header);
                let rest = stored.get(header.len()..).unwrap_or_default();
                self.scratch.extend_from_slice(rest);
                &self.scratch[..]
            }
            Some(header) => header,
            None => stored,
        };
        let Node::Router(router) = &mut self.nodes[node] else {
            return Routing::Ignore;
        };
        router.route(bytes, fields, l3, at, release.last_at, answer)
    }

    /// Sends a frame that a node made.
    fn answer(&mut self, way: usize, frame: &[u8], len: Option<usize>, at: Instant) {
        let Some(frame) = len.and_then(|len| frame.get(..len)) else {
            return;
        };
        if let Some(handle) = self.make(way, frame, at) {
            self.enter(way, handle, Run::fresh(1, at));
        }
    }
}
