//! What tshark prints of TCP packets: frame number, addresses and ports, and the fields that are asked for.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::process::{Command, Stdio};

use fault::Failure;

/// Address and port of a packet's sender, and of its receiver; IPv4 addresses as IPv6 maps them.
pub(crate) type Way = ([u8; 16], u16, [u8; 16], u16);

/// What tshark is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<const N: usize> {
    /// How it is to take the packets (`-o`).
    pub(crate) preference: &'static str,
    /// Fields beside those that say which packet it is.
    pub(crate) fields: [&'static str; N],
}

/// Says which packet it is; of tunnelled ones the innermost.
const PACKET: [&str; 7] = [
    "frame.number",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
];
const COMMON: [&str; 13] = [
    "-n",
    "-Y",
    "tcp",
    "-T",
    "fields",
    "-E",
    "separator=|",
    "-E",
    "occurrence=l",
    "-o",
    "tcp.desegment_tcp_streams:false",
    "-o",
    "tcp.try_heuristic_first:false",
];
pub(crate) const MISSING: &str = "tshark cannot be started; install it (Debian: apt-get install tshark) or \
                                  leave --observer out";

impl<const N: usize> Asked<N> {
    /// The command's arguments, but for the file.
    pub(crate) fn arguments(&self) -> Vec<&'static str> {
        let mut all = COMMON.to_vec();
        all.extend(["-o", self.preference]);
        let fields = PACKET.iter().chain(&self.fields);
        all.extend(fields.flat_map(|field| ["-e", field]));
        all
    }

    /// Has each TCP packet of a file printed: its frame, its way and the fields' values, empty where it has
    /// none.
    ///
    /// # Errors
    /// When tshark cannot be started or does not read the file.
    pub(crate) fn read(
        &self,
        file: &Path,
        mut each: impl FnMut(u64, Way, [&str; N]),
    ) -> Result<(), Failure> {
        let mut child = Command::new("tshark")
            .args(self.arguments())
            .arg("-r")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|_| Failure::here(MISSING))?;
        let stdout = child.stdout.take();
        let stdout = stdout.ok_or_else(|| Failure::here("tshark has no output"))?;
        for line in BufReader::new(stdout).lines() {
            if let Some((frame, way, values)) = packet(&line.map_err(Failure::here)?) {
                each(frame, way, values);
            }
        }
        let status = child.wait().map_err(Failure::here)?;
        if !status.success() {
            let file = file.display();
            return Err(Failure::here(format!(
                "tshark could not read {file}: {status}"
            )));
        }
        Ok(())
    }
}

fn packet<const N: usize>(line: &str) -> Option<(u64, Way, [&str; N])> {
    let fields: Vec<&str> = line.split('|').collect();
    let (packet, values) = fields.split_at_checked(PACKET.len())?;
    let [frame, v4_from, v4_to, v6_from, v6_to, from, to] = *packet else {
        return None;
    };
    let address = |v4: &str, v6: &str| -> Option<[u8; 16]> {
        let typed = if v4.is_empty() { v6 } else { v4 };
        Some(match typed.parse().ok()? {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => Ipv6Addr::octets(&v6),
        })
    };
    let way = (
        address(v4_from, v6_from)?,
        from.parse().ok()?,
        address(v4_to, v6_to)?,
        to.parse().ok()?,
    );
    Some((frame.parse().ok()?, way, values.try_into().ok()?))
}

/// Seconds as tshark prints them, such as `1700000000.000007780`.
pub(crate) fn nanoseconds(seconds: &str) -> Option<u64> {
    let (seconds, fraction) = seconds.split_once('.')?;
    let fraction: u64 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let whole = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
    whole.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_tshark_is_a_packet() {
        let line = "7|198.18.0.1|198.18.0.2|||40000|5201|1700000000.000007780|8960";
        let (frame, way, [time, payload]) = packet(line).unwrap();
        assert_eq!((frame, payload), (7, "8960"));
        assert_eq!(nanoseconds(time), Some(1_700_000_000_000_007_780));
        assert_eq!((way.1, way.3), (40_000, 5_201));
        assert_eq!(way.0[10..], [0xff, 0xff, 198, 18, 0, 1]);
        let (_, v6, [time]) = packet("1|||2001:db8::1|2001:db8::2|1|2|0.5").unwrap();
        assert_eq!(
            (&v6.2[..2], nanoseconds(time)),
            (&[0x20, 0x01][..], Some(500_000_000))
        );
        for bad in ["1||||| 1|2|0", "1|198.18.0.1|198.18.0.2|||1|2", "nonsense"] {
            assert!(packet::<1>(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn the_fields_stand_in_the_order_in_which_they_are_read() {
        let asked = Asked {
            preference: "tcp.analyze_sequence_numbers:false",
            fields: ["tcp.len"],
        };
        let arguments = asked.arguments();
        assert_eq!(arguments[arguments.len() - 2..], ["-e", "tcp.len"]);
        assert_eq!(arguments.iter().filter(|a| **a == "-e").count(), 8);
    }
}
