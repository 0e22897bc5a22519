//! A list of cables.
//!
//! A line has two names and, if wanted, the port at each: `leaf0 spine3` or `leaf0 spine3 13 1`. `#` begins a comment.
//! A name with one cable is a host, one with more a switch; cables in parallel are lines in parallel. Ports
//! that are not given are the lowest free ones, in the order of the lines.

use std::collections::{BTreeMap, BTreeSet};

use crate::import::{Draft, Import, ImportError, Part, lines, printable, refuse};
use crate::spec::{HOSTS_MAX, PORTS_MAX, SWITCHES_MAX};
use crate::topology::Parts;

/// Reads a list of cables.
///
/// # Errors
/// [`ImportError`] with the line and what was expected there.
pub fn edges(text: &str, parts: &Parts) -> Result<Import, ImportError> {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    // Name, first line, cables.
    let mut found: Vec<(&str, usize, u32)> = Vec::new();
    let mut cables = Vec::new();
    for (line, text) in lines(text)? {
        let words = text.split('#').next().unwrap_or_default();
        let words: Vec<&str> = words.split_whitespace().take(5).collect();
        let (pair, ports) = match words[..] {
            [] => continue,
            [a, b] => ([a, b], [None, None]),
            [a, b, p, q] => ([a, b], [port(line, p)?, port(line, q)?]),
            _ => {
                let problem = "expected two names, and the port at each if it is known";
                return refuse(line, problem);
            }
        };
        let mut ends = [0; 2];
        for (end, name) in ends.iter_mut().zip(pair) {
            *end = *names.entry(name).or_insert(found.len());
            if *end == found.len() {
                if found.len() >= HOSTS_MAX + SWITCHES_MAX {
                    return refuse(
                        line,
                        format!("more than {} names", HOSTS_MAX + SWITCHES_MAX),
                    );
                }
                found.push((name, line, 0));
            }
            let count = &mut found[*end].2;
            *count += 1;
            if *count > u32::from(PORTS_MAX) {
                return refuse(line, format!("{name} has more than {PORTS_MAX} cables"));
            }
        }
        cables.push((line, ends, ports));
    }
    let mut draft = Draft::default();
    for (name, line, count) in &found {
        draft.part(Part {
            name: printable(name),
            switch: *count > 1,
            ports: u32::from(PORTS_MAX),
            line: *line,
            guid: None,
        })?;
    }
    let mut taken: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); found.len()];
    for (line, ends, ports) in &cables {
        for (end, port) in ends.iter().zip(ports) {
            if let Some(port) = port
                && !taken[*end].insert(*port)
            {
                let name = &draft.parts[*end].name;
                return refuse(*line, format!("{name} port {port} has a cable already"));
            }
        }
    }
    let mut next = vec![1_u32; found.len()];
    for (line, ends, ports) in cables {
        let mut of = [(0, 0); 2];
        for ((of, end), port) in of.iter_mut().zip(ends).zip(ports) {
            let free = || {
                while taken[end].contains(&next[end]) {
                    next[end] += 1;
                }
                next[end] += 1;
                next[end] - 1
            };
            *of = (end, port.unwrap_or_else(free));
        }
        draft.cable(of[0], of[1], line, None)?;
        draft.cable(of[1], of[0], line, None)?;
    }
    draft.finish(parts)
}

fn port(line: usize, text: &str) -> Result<Option<u32>, ImportError> {
    match text.parse() {
        Ok(port) if (1..=u32::from(PORTS_MAX)).contains(&port) => Ok(Some(port)),
        _ => refuse(
            line,
            format!(
                "'{}' is no port; expected 1 to {PORTS_MAX}",
                printable(text)
            ),
        ),
    }
}
