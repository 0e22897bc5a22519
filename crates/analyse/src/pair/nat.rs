//! Addresses that became others between the two captures, in words.

use std::collections::BTreeMap;

use explain::pairing::{Paired, Translated, Translations};
use report::model::{TracePair, TraceTranslation};

use crate::names::{address, endpoint};

/// Adds what was translated of the connections that both captures have.
pub(crate) fn tell(
    pair: &mut TracePair,
    paired: &Paired,
    translations: &Translations,
    [near, far]: &[String; 2],
) {
    for (told, connection) in pair.connections.iter_mut().zip(&paired.connections) {
        let side = usize::from(connection.near_side & 1);
        told.translated_ends = translations
            .far_of(&connection.flow)
            .map(|t| [side, 1 - side].map(|end| far_end(t, end)).to_vec());
    }
    let flows = paired.connections.iter().map(|c| &c.flow);
    let found: Vec<&Translated> = flows.filter_map(|f| translations.far_of(f)).collect();
    if found.is_empty() {
        return;
    }
    let mut sums: BTreeMap<([u8; 16], [u8; 16]), (u64, u64)> = BTreeMap::new();
    for translated in &found {
        for end in 0..2 {
            let was = (translated.near.addresses[end], translated.near.ports[end]);
            let became = translated.end(end);
            if was != became {
                let (connections, ports) = sums.entry((was.0, became.0)).or_default();
                *connections += 1;
                *ports += u64::from(was.1 != became.1);
            }
        }
    }
    let mut list: Vec<TraceTranslation> = sums
        .into_iter()
        .map(|((was, became), (connections, ports))| TraceTranslation {
            near_address: address(was),
            far_address: address(became),
            connections,
            ports_changed: ports,
        })
        .collect();
    list.sort_by_key(|t| std::cmp::Reverse(t.connections));
    let named: Vec<String> = list.iter().take(NAMED_MAX).map(words).collect();
    let more = match list.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    pair.translated = Some(format!(
        "Addresses were translated between {near} and {far} (NAT): {}{more}; {} of {} connections",
        named.join(", "),
        found.len(),
        paired.connections.len()
    ));
    list.truncate(LISTED_MAX);
    pair.translations = list;
}

/// `10.0.0.2 became 203.0.113.1`, or that only ports changed.
fn words(t: &TraceTranslation) -> String {
    if t.near_address == t.far_address {
        return format!("{} got other ports", t.near_address);
    }
    let ports = match t.ports_changed {
        0 => "",
        n if n == t.connections => " with other ports",
        _ => " with other ports at times",
    };
    format!("{} became {}{ports}", t.near_address, t.far_address)
}

fn far_end(translated: &Translated, near_end: usize) -> String {
    let far = near_end ^ usize::from(translated.is_turned);
    endpoint(&translated.far, far)
}

const NAMED_MAX: usize = 3;
const LISTED_MAX: usize = 200;
