//! Links that fail, as a file has them: `[[fault]]` and `[recovery]`.
//!
//! A link between chips is told by its name, which no draw changes; a host's by the host, since where it is plugged in may be
//! drawn.

use fabric::{FabricSpec, Fault, FaultRule, Faults, Node, Place, SpecError};

use crate::check::{Checked, Refusal, ps, refuse};
use crate::raw::RawFile;
use crate::{Names, Tier};

/// Failures of a study's links.
#[derive(Clone, Debug)]
pub(crate) struct Failing {
    all: Vec<One>,
    rule: FaultRule,
}

#[derive(Clone, Debug)]
struct One {
    link: Which,
    at_ps: u64,
    until_ps: Option<u64>,
    /// Where it stands in the file.
    place: usize,
}

#[derive(Clone, Debug)]
enum Which {
    Host(u32),
    Named(String),
}

/// The failures of a file; `None`: it has none.
pub(crate) fn check(
    raw: &RawFile,
    spec: &FabricSpec,
    names: &Names,
    tier: Tier,
) -> Checked<Option<Failing>> {
    let Some(first) = raw.fault.first() else {
        return match &raw.recovery {
            Some(recovery) => refuse(recovery, "recovery: there is no [[fault]] to recover from"),
            None => Ok(None),
        };
    };
    if tier == Tier::Flows {
        let problem = "fluids know nothing of links that fail: tier must be packets";
        return refuse(first, problem);
    }
    let mut rule = FaultRule::default();
    if let Some(recovery) = raw.recovery.as_ref().map(|r| r.get_ref()) {
        if let Some(retry) = &recovery.retry {
            if raw.ethernet.is_some() {
                return refuse(retry, "an Ethernet's timer is [ethernet] retry");
            }
            rule.retry_ps = ps(Some(retry));
        }
        if let Some(retries) = &recovery.retries {
            rule.retries = *retries.get_ref();
        }
        rule.sweep_ps = recovery.reroute.as_ref().map(|r| ps(Some(r)));
    }
    let mut all = Vec::new();
    for fault in &raw.fault {
        let own = fault.get_ref();
        let Some(link) = named(spec, names, own.link.get_ref()) else {
            let between = (0..)
                .zip(&spec.links)
                .find(|(_, l)| l.ends.iter().all(|end| matches!(end, Node::Switch(_))));
            let such = between.and_then(|(n, _): (usize, _)| names.links.get(n));
            let problem = format!(
                "there is no link '{}'; expected a host, whose cable it is, or a link such as '{}'",
                own.link.get_ref(),
                such.or_else(|| names.links.first())
                    .map_or("", String::as_str)
            );
            return refuse(&own.link, problem);
        };
        all.push(One {
            link,
            at_ps: ps(Some(&own.at)),
            until_ps: own.until.as_ref().map(|u| ps(Some(u))),
            place: own.link.span().start,
        });
    }
    Ok(Some(Failing { all, rule }))
}

/// A link by its name from either end, or by its host.
fn named(spec: &FabricSpec, names: &Names, text: &str) -> Option<Which> {
    let host = names.hosts.iter().position(|name| name == text);
    if let Some(host) = host {
        return u32::try_from(host).ok().map(Which::Host);
    }
    let found = number(names, text)?;
    let ends = spec.links.get(found as usize)?.ends;
    let host = ends.into_iter().find_map(|end| match end {
        Node::Host(n) => Some(Which::Host(n)),
        Node::Switch(_) => None,
    });
    host.or_else(|| names.links.get(found as usize).cloned().map(Which::Named))
}

fn number(names: &Names, text: &str) -> Option<u32> {
    let turned = text.split_once('/').map(|(a, b)| format!("{b}/{a}"));
    let is = |name: &String| name == text || Some(name) == turned.as_ref();
    names
        .links
        .iter()
        .position(is)
        .and_then(|n| u32::try_from(n).ok())
}

impl Failing {
    /// For a fabric whose tables its subnet manager finds.
    ///
    /// # Errors
    /// [`SpecError`], as [`Faults::new`].
    pub(crate) fn of(&self, spec: &FabricSpec, names: &Names) -> Result<Faults, SpecError> {
        let mut all = Vec::new();
        for one in &self.all {
            let link = match &one.link {
                Which::Named(name) => number(names, name),
                Which::Host(host) => (0..)
                    .zip(&spec.links)
                    .find(|(_, link)| link.ends.contains(&Node::Host(*host)))
                    .map(|(n, _)| n),
            };
            let Some(link) = link else {
                let problem = "a link that fails is not there".to_owned();
                return Err(SpecError {
                    place: Place::Whole,
                    problem,
                });
            };
            all.push(Fault {
                link,
                at_ps: one.at_ps,
                until_ps: one.until_ps,
            });
        }
        Faults::new(spec, &all, self.rule.clone())
    }

    /// A refusal with the line of the failure that it is about.
    pub(crate) fn refusal(&self, names: &Names, error: &SpecError) -> Refusal {
        let link = match error.place {
            Place::Link(n) => names.links.get(n as usize),
            _ => None,
        };
        // The last that names it: the first one was fine.
        let at = self.all.iter().rev().find(|one| match &one.link {
            Which::Named(name) => Some(name) == link,
            Which::Host(host) => names.hosts.get(*host as usize).is_some_and(|host| {
                link.is_some_and(|link| link.split('/').any(|end| end == host))
            }),
        });
        let at = at.or_else(|| self.all.first()).map_or(0, |one| one.place);
        Refusal {
            at,
            problem: match link {
                Some(link) => format!("link {link}: {}", error.problem),
                None => error.problem.clone(),
            },
        }
    }
}
