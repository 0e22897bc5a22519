//! Names of files, hosts and ends as run folders have them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;

use explain::trace::{CapturePoint, End};
use wire::segment::FlowKey;

/// Without folders.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// `192.0.2.1:5201` or `[2001:db8::1]:443`.
pub(crate) fn endpoint(flow: &FlowKey, side: usize) -> String {
    SocketAddr::new(ip(flow.addresses[side]), flow.ports[side]).to_string()
}

/// `192.0.2.1` or `2001:db8::1`.
pub(crate) fn address(octets: [u8; 16]) -> String {
    ip(octets).to_string()
}

fn ip(octets: [u8; 16]) -> IpAddr {
    let v6 = Ipv6Addr::from(octets);
    v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4)
}

pub(crate) const fn ended(end: End) -> &'static str {
    match end {
        End::Fin => "fin",
        End::Reset { .. } => "reset",
        End::Replaced => "replaced",
        End::Idle => "idle",
        End::Unanswered => "unanswered",
        End::Evicted => "evicted",
        _ => "open",
    }
}

/// Where a connection was captured.
pub(crate) const fn captured(at: CapturePoint) -> &'static str {
    match at {
        CapturePoint::NearSender => "near_sender",
        CapturePoint::NearReceiver => "near_receiver",
        CapturePoint::Between => "between",
    }
}
