//! Plans and states as people read them: first what changes and what it brings, then each step with its formula.

use std::fmt::Write as _;

use settings::{Judgement, Plan, Step};

use crate::ask::Asked;
use crate::change::Undone;
use crate::tuner::{State, Verified};

/// A plan.
pub fn plan_text(asked: &Asked, width: usize) -> String {
    let plan = &asked.plan;
    let mut out = String::new();
    head(&mut out, asked, width);
    for step in &plan.steps {
        step_text(&mut out, step, width);
    }
    if !plan.cannot.is_empty() {
        out.push_str("\ncannot be set here\n");
        for one in &plan.cannot {
            entry(&mut out, &one.key.to_string(), "", &one.why, width);
        }
    }
    if !plan.enough.is_empty() {
        out.push_str("\nalready enough\n");
        for one in &plan.enough {
            entry(&mut out, &one.key.to_string(), &one.value, &one.why, width);
        }
    }
    if !plan.advice.is_empty() {
        out.push_str("\nnot worth doing, or done elsewhere\n");
        for one in &plan.advice {
            entry(&mut out, &one.about, "", &one.text, width);
        }
    }
    memory(&mut out, plan, width);
    if !asked.programs.is_empty() {
        out.push_str("\nothers that set values of this host\n");
        for one in &asked.programs {
            entry(&mut out, one.name, "", &one.what, width);
        }
    }
    if !asked.judged.is_empty() {
        out.push_str("\nthe list, judged\n");
        for one in &asked.judged {
            let mark = match one.judgement {
                Judgement::Right => "✓",
                Judgement::Harmless => "–",
                Judgement::Wrong => "✗",
                Judgement::Unknown => "?",
            };
            let what = format!("{mark} {} = {}", one.key, one.value);
            entry(&mut out, &what, one.judgement.name(), &one.why, width);
        }
    }
    out
}

fn head(out: &mut String, asked: &Asked, width: usize) {
    let plan = &asked.plan;
    let request = &plan.request;
    let device = asked.facts.device.as_ref();
    let device = device.map_or_else(String::new, |one| format!(", {}", one.name));
    let connections = match request.connections {
        1 => "1 connection".to_owned(),
        many => format!("{many} connections"),
    };
    let first = match (&plan.refused, plan.steps.len()) {
        (Some(why), _) => format!("✗ Not to be applied: {why}."),
        (None, 0) => "● Nothing to change: this host is set for the path.".to_owned(),
        (None, 1) => format!("● 1 setting to change{}", gain(plan)),
        (None, many) => format!("● {many} settings to change{}", gain(plan)),
    };
    paragraph(out, 0, 2, &first, width);
    let second = format!(
        "{} at {}, {connections}, {}{device}; window {} x {} = {}",
        request.rate,
        request.rtt,
        request.role.what(),
        request.rate,
        request.rtt,
        plan.window
    );
    paragraph(out, 2, 2, &second, width);
    if !asked.assumed.is_empty() {
        let assumed = format!("assumed: {}", asked.assumed.join("; "));
        paragraph(out, 2, 4, &assumed, width);
    }
}

/// What the buffers bring; the other steps bring what each says.
fn gain(plan: &Plan) -> String {
    match (plan.rate_before, plan.rate_after) {
        (Some(before), Some(after)) if after > before => {
            format!(
                ": the buffers let one connection reach {after} in place of {before} of {}",
                plan.request.rate
            )
        }
        (Some(before), _) if before < plan.request.rate => {
            format!(
                "; the buffers keep one connection at {before} of {}",
                plan.request.rate
            )
        }
        (Some(_), _) => "; the buffers already fit the path".to_owned(),
        _ => String::new(),
    }
}

fn step_text(out: &mut String, step: &Step, width: usize) {
    let change = format!(
        "→ {}  {} → {}",
        step.key,
        words(&step.old),
        words(&step.new)
    );
    out.push('\n');
    paragraph(out, 0, 4, &change, width);
    paragraph(out, 4, 4, &step.why, width);
    let mut facts = format!("{}, {}; {}", step.scope.name(), step.from, step.restart);
    if !step.cost.is_empty() {
        let _ = write!(facts, "; cost: {}", step.cost);
    }
    paragraph(out, 4, 4, &facts, width);
    for writer in &step.writers {
        paragraph(out, 4, 6, &format!("! {writer}"), width);
    }
}

fn memory(out: &mut String, plan: &Plan, width: usize) {
    let memory = &plan.memory;
    let mut text = format!(
        "memory: {} in use at the path's rate; {} if every connection filled both buffers",
        memory.usual, memory.worst
    );
    match memory.limit {
        Some(limit) => {
            let _ = write!(text, "; tcp_mem shrinks windows from {limit} on");
        }
        None => text.push_str("; tcp_mem is the machine's and hidden here"),
    }
    out.push('\n');
    paragraph(out, 0, 2, &text, width);
}

/// Where a host stands.
pub fn state_text(state: &State, width: usize) -> String {
    let mut out = String::new();
    let first = match state.word {
        "nothing" => "● Nothing of goodput is applied here.".to_owned(),
        "applied" => format!("● Applied {} for {}", state.at, state.what),
        "unconfirmed" => format!(
            "◐ Applied {} for {}; it waits for: goodput tune confirm",
            state.at, state.what
        ),
        "interrupted" => format!(
            "✗ Interrupted at {} for {}: take back what was set with: goodput tune undo",
            state.at, state.what
        ),
        _ => "● Nothing is applied: the last plan failed and was taken back.".to_owned(),
    };
    paragraph(&mut out, 0, 2, &first, width);
    for (key, ours, now) in &state.values {
        let now = match now {
            Some(now) if words(now) == words(ours) => "ours".to_owned(),
            Some(now) => format!("changed since, to {}", words(now)),
            None => "no longer there".to_owned(),
        };
        entry(&mut out, key, &words(ours), &now, width);
    }
    let place = format!("journal: {}", state.folder.display());
    paragraph(&mut out, 2, 4, &place, width);
    out
}

/// What an undo did.
pub fn undone_text(undone: &Undone, width: usize) -> String {
    let mut out = String::new();
    let first = match (undone.restored.len(), undone.failed.is_empty()) {
        (0, true) if undone.foreign.is_empty() => "● There was nothing to undo.".to_owned(),
        (1, true) => "● 1 value is as it was.".to_owned(),
        (count, true) => format!("● {count} values are as they were."),
        (count, false) => format!("✗ {count} values are as they were, others are not:"),
    };
    paragraph(&mut out, 0, 2, &first, width);
    for (key, now) in &undone.foreign {
        let why = "somebody else has changed it since; it is left";
        entry(&mut out, key, &words(now), why, width);
    }
    for (key, why) in &undone.failed {
        entry(&mut out, key, "", why, width);
    }
    out
}

/// What a verification found.
pub fn verified_text(verified: &Verified, width: usize) -> String {
    let wrong = verified.checks.iter().filter(|c| !c.holds).count();
    let mut out = String::new();
    let first = match wrong {
        0 => format!("● All {} hold.", verified.checks.len()),
        _ => format!("✗ {wrong} of {} do not hold.", verified.checks.len()),
    };
    paragraph(&mut out, 0, 2, &first, width);
    for check in &verified.checks {
        let mark = if check.holds { "✓" } else { "✗" };
        let found = match check.holds {
            true => String::new(),
            false => format!("is {}", words(&check.found)),
        };
        let what = format!("{mark} {}", check.what);
        entry(&mut out, &what, &words(&check.expected), &found, width);
    }
    out
}

fn entry(out: &mut String, what: &str, value: &str, why: &str, width: usize) {
    let mut line = what.to_owned();
    for (gap, part) in [("  ", value), (": ", why)] {
        if !part.is_empty() {
            line.push_str(gap);
            line.push_str(part);
        }
    }
    paragraph(out, 2, 4, &line, width);
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Words in lines of at most `width`, the first behind `first` blanks, the others behind `indent`.
fn paragraph(out: &mut String, first: usize, indent: usize, text: &str, width: usize) {
    let mut column = first;
    out.push_str(&" ".repeat(first));
    let mut begun = false;
    // Two blanks between a name and its value stay where they fall within a line.
    for word in text.split(' ') {
        let length = word.chars().count();
        if begun && column + 1 + length > width {
            while out.ends_with(' ') {
                out.pop();
            }
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if begun {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
        begun = true;
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use settings::{Facts, NASA_2007, Request, Role};

    use super::*;

    #[test]
    fn a_plan_says_first_what_changes_and_no_line_is_too_long() {
        let mut facts = Facts::default();
        facts.set("net.ipv4.tcp_rmem", "4096\t131072\t33554432");
        facts.set("net.ipv4.tcp_wmem", "4096\t16384\t4194304");
        facts.set("net.ipv4.tcp_mem", "188000 262144 393216");
        facts.set("net.ipv4.tcp_sack", "1");
        let key = settings::Key::sysctl("net.ipv4.tcp_rmem");
        facts
            .writers
            .insert(key, vec!["TuneD sets 4096 131072 16777216".to_owned()]);
        let request = Request::new(
            "10Gb/s".parse().unwrap(),
            "85ms".parse().unwrap(),
            Role::Dtn,
        );
        let plan = settings::derive(&request, &facts);
        let judged = settings::judge(NASA_2007, &plan, &facts);
        let asked = Asked {
            plan,
            facts,
            assumed: vec!["a data-transfer node (--role)".to_owned()],
            programs: Vec::new(),
            judged,
        };
        for width in [60, 80, 120] {
            let text = plan_text(&asked, width);
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{line}");
            }
        }
        let text = plan_text(&asked, 120);
        let expected = "\
● 2 settings to change: the buffers let one connection reach 10 Gb/s in place of 355.3 Mb/s of 10 Gb/s
  10 Gb/s at 85 ms, 1 connection, data-transfer node; window 10 Gb/s x 85 ms = 106.2 MB
  assumed: a data-transfer node (--role)

→ net.ipv4.tcp_rmem  4096 131072 33554432 → 4096 131072 356515840
    2 x 10 Gb/s x 85 ms / 0.6 = 340 MiB
    namespace, new connections; kept by the drop-in file; cost: up to 340 MiB a connection, taken as it is needed
    ! TuneD sets 4096 131072 16777216

→ net.ipv4.tcp_wmem  4096 16384 4194304 → 4096 16384 239075328
";
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.contains("  ✗ net.ipv4.tcp_rmem = 4096 524288 104857600  wrong: too small"),
            "{text}"
        );
    }
}
