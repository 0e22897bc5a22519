//! One run as one page: verdict first, then numbers, path, remedy, charts, findings, certificate.
//!
//! The page stands alone: no script, no network (a content security policy forbids both), pictures
//! as inline SVG, colours by `prefers-color-scheme`. It is written for two readers: one who has
//! five seconds and reads the top, and one who checks every number and finds each with its unit
//! and source. All text from outside is escaped, and its amount bounded, so a page stays a page
//! whatever a run folder says.

mod compare;
mod copy;
mod fabric;
mod fabric_study;
mod facts;
mod findings;
pub(crate) mod gateway;
mod hero;
mod messages;
mod overlay;
pub(crate) mod pair;
mod path;
mod phases;
pub mod queue;
pub(crate) mod rotate;
mod sweep;
pub(crate) mod trace;

pub use compare::render_comparison;
pub(crate) use fabric::cells as fabric_cells;
pub(crate) use fabric_study::{
    failures, heads as study_heads, in_short, replayed, rows as study_rows,
};
pub use sweep::setting as sweep_setting;
pub(crate) use sweep::{said_of as sweep_said, spoken as sweep_way};

use crate::model::{FindingRecord, Run, SampleRecord};
use crate::svg;
use crate::text::{self, Tone};

/// The report of one run: a complete HTML document.
pub fn render(run: &Run, samples: &[SampleRecord], findings: &[FindingRecord]) -> String {
    let title = format!(
        "goodput {} {}",
        text::plain(&run.verb),
        text::plain(&run.name)
    );
    let mut out = open_page(&title);
    hero::verdict(&mut out, run);
    hero::numbers(&mut out, run);
    facts::legs(&mut out, run);
    sweep::section(&mut out, run);
    messages::section(&mut out, run);
    fabric_study::section(&mut out, run);
    fabric::section(&mut out, run);
    rotate::section(&mut out, run);
    copy::section(&mut out, run, samples);
    gateway::section(&mut out, run, samples);
    trace::section(&mut out, run, findings);
    path::section(&mut out, run);
    if run.trace.is_none() {
        findings::remedies(&mut out, run, findings);
    }
    phases::section(&mut out, run, samples);
    if run.trace.is_none() {
        findings::section(&mut out, run, findings);
    }
    facts::certificate(&mut out, run);
    facts::host_cost(&mut out, run);
    facts::observers(&mut out, run);
    facts::machines(&mut out, run);
    facts::how_made(&mut out, run);
    close_page(&mut out);
    out
}

fn open_page(title: &str) -> String {
    let mut out = String::with_capacity(64 << 10);
    put!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{}</style>\n</head>\n\
         <body>\n<main>\n",
        svg::escape(title),
        include_str!("html/style.css")
    );
    out
}

fn close_page(out: &mut String) {
    out.push_str("</main>\n</body>\n</html>\n");
}

/// Text from outside, fit to be shown.
fn shown(text: &str) -> String {
    svg::escape(&text::plain(text))
}

/// A sentence from outside: a number and its unit stay on one line.
fn shown_sentence(text: &str) -> String {
    svg::escape(&text::glued(&text::plain(text)))
}

/// The same with its line ends, for `<pre>`.
fn shown_block(text: &str) -> String {
    svg::escape(&text::plain_block(text))
}

/// A number with its unit set smaller.
fn with_small_unit(quantity: &str) -> String {
    match quantity.split_once(' ') {
        Some((number, unit)) => format!("{number}<small>&nbsp;{unit}</small>"),
        None => quantity.to_owned(),
    }
}

const fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "good",
        Tone::Limited => "limited",
        Tone::Unsure => "unsure",
        Tone::Bad => "bad",
    }
}

/// A line that says what was left out of a bounded list.
fn left_out(out: &mut String, all: usize, shown_max: usize, things: &str) {
    if all > shown_max {
        put!(
            out,
            "<p class=\"note\">{} more {things} are not shown.</p>\n",
            all - shown_max
        );
    }
}

/// A table row of a heading and one cell for each column; nothing when no cell has content.
/// Cells are HTML.
fn table_row(out: &mut String, heading: &str, cells: &[Option<String>]) {
    if cells.iter().all(Option::is_none) {
        return;
    }
    put!(out, "<tr><th scope=\"row\">{heading}</th>");
    for cell in cells {
        put!(
            out,
            "<td>{}</td>",
            text::glued(cell.as_deref().unwrap_or("–"))
        );
    }
    out.push_str("</tr>\n");
}

/// Phases that are shown: a sweep has its own tables.
const PHASES_MAX: usize = 12;
/// Entries of any other list that are shown.
const ENTRIES_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Certificate, CpuShares, EndCost, HostCost, HostFacts, LegRecord, MachineCost, NicFacts,
        Observer, PathFacts, Phase, RemedyRecord, RunState, Sweep, Verdict,
    };

    const HOSTILE: &str =
        "</pre><script>alert('x')</script>\"><img src=x onerror='y'>&\u{202e}\u{0}";

    /// A run whose every text is hostile.
    fn hostile_run() -> (Run, Vec<SampleRecord>, Vec<FindingRecord>) {
        let bad = || HOSTILE.to_owned();
        let nic = NicFacts {
            name: bad(),
            driver: Some(bad()),
            ..NicFacts::default()
        };
        let host = |role: &str| HostFacts {
            role: role.to_owned(),
            name: bad(),
            kernel: bad(),
            cpu_model: bad(),
            nics: vec![nic.clone()],
            congestion_control: Some(bad()),
            tcp_rmem_bytes: Some([u64::MAX; 3]),
            ..HostFacts::default()
        };
        let phase = Phase {
            name: bad(),
            settings: vec![bad()],
            direction: bad(),
            congestion_control: bad(),
            duration_ns: u64::MAX,
            predicted_bits_per_second: Some(u64::MAX),
            predicted_from: Some(bad()),
            goodput_bits_per_second: u64::MAX,
            certificate: Some(Certificate {
                problems: vec![bad()],
                delay_error_p50_ns: i64::MIN,
                ..Certificate::default()
            }),
            host_cost: Some(HostCost {
                ends: vec![EndCost {
                    end: bad(),
                    busiest_thread_share: f64::NAN,
                    ..EndCost::default()
                }],
                machines: vec![MachineCost {
                    ends: vec![bad()],
                    cpus: vec![CpuShares {
                        idle_share: f64::INFINITY,
                        ..CpuShares::default()
                    }],
                    ..MachineCost::default()
                }],
            }),
            observers: vec![Observer {
                tool: bad(),
                command: bad(),
                goodput_bits_per_second: 0,
                ..Observer::default()
            }],
            ..Phase::default()
        };
        let run = Run {
            verb: bad(),
            name: bad(),
            state: RunState::Done,
            command_line: vec![bad()],
            goodput_version: bad(),
            started_utc: bad(),
            finished_utc: Some(bad()),
            hosts: vec![host("near"), host("far"), host(HOSTILE)],
            path: Some(PathFacts {
                file: Some(bad()),
                text: Some(bad()),
                title: Some(bad()),
                source: bad(),
                loss_forward: f64::NAN,
                rate_bits_per_second: Some(u64::MAX),
                ..PathFacts::default()
            }),
            phases: vec![phase],
            legs: vec![LegRecord {
                from: bad(),
                to: bad(),
                phase: bad(),
                loss: f64::NAN,
                slows: true,
                ..LegRecord::default()
            }],
            verdict: Some(Verdict {
                sentence: bad(),
                cause: Some(bad()),
                conclusive: true,
                healthy: false,
                ..Verdict::default()
            }),
            error: Some(bad()),
            ..Run::default()
        };
        let finding = FindingRecord {
            phase: bad(),
            cause: bad(),
            title: bad(),
            confidence: f64::INFINITY,
            evidence: vec![bad()],
            remedy: Some(RemedyRecord {
                summary: bad(),
                host: bad(),
                sysctl: vec![bad()],
                flags: vec![bad()],
                predicted_from: Some(bad()),
                cost: bad(),
                ..RemedyRecord::default()
            }),
            ..FindingRecord::default()
        };
        let sample = SampleRecord {
            phase: bad(),
            end: bad(),
            ..SampleRecord::default()
        };
        (run, vec![sample], vec![finding])
    }

    #[test]
    fn hostile_text_is_shown_and_never_obeyed() {
        let (run, samples, findings) = hostile_run();
        let loaded = crate::LoadedRun {
            run: run.clone(),
            ..crate::LoadedRun::default()
        };
        for page in [
            render(&run, &samples, &findings),
            render_comparison(&[loaded]),
        ] {
            assert!(
                !page.contains("<script") && !page.contains("<img"),
                "{page}"
            );
            assert!(!page.contains("onerror='"), "{page}");
            assert!(!page.contains('\u{202e}') && !page.contains('\u{0}'));
            assert!(page.contains("&lt;script&gt;"));
        }
    }

    #[test]
    fn a_sweep_over_a_lab_that_fell_behind_is_not_shown_as_good() {
        let with = |certificate| Run {
            state: RunState::Done,
            sweep: Some(Sweep {
                certificate,
                ..Sweep::default()
            }),
            verdict: Some(Verdict {
                conclusive: true,
                ..Verdict::default()
            }),
            ..Run::default()
        };
        let judged = |trusted| Certificate {
            trusted,
            ..Certificate::default()
        };
        for (certificate, chip, word) in [
            (None, "good\">swept", None),
            (Some(judged(true)), "good\">swept", Some("good\">trusted")),
            (
                Some(judged(false)),
                "unsure\">lab not trusted",
                Some("bad\">not trusted"),
            ),
        ] {
            let page = render(&with(certificate), &[], &[]);
            assert!(
                page.contains(&format!("<p class=\"chip {chip}</p>")),
                "{page}"
            );
            let said = word.is_none_or(|w| page.contains(&format!("<span class=\"word {w}<")));
            assert!(said, "{page}");
            assert_eq!(page.contains("The lab's certificate"), word.is_some());
        }
    }

    #[test]
    fn an_empty_run_is_a_whole_page() {
        let page = render(&Run::default(), &[], &[]);
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        assert!(page.contains("interrupted"));
        assert!(!page.contains("NaN"));
        assert!(render_comparison(&[]).ends_with("</html>\n"));
    }

    #[test]
    fn a_page_names_nothing_outside_itself() {
        let (run, samples, findings) = hostile_run();
        let page = render(&run, &samples, &findings);
        for outside in [
            "http://", "https://", "url(", "@import", "src=\"", "<script", "xlink",
        ] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn every_element_that_opens_closes() {
        let (run, samples, findings) = hostile_run();
        for page in [
            render(&run, &samples, &findings),
            render(&Run::default(), &[], &[]),
        ] {
            for tag in [
                "section", "div", "table", "tr", "td", "th", "p", "svg", "pre", "ul", "li", "dl",
                "dt", "dd", "figure", "article", "details", "h2", "h3", "span", "text", "title",
            ] {
                let opened = page.matches(&format!("<{tag}>")).count()
                    + page.matches(&format!("<{tag} ")).count();
                assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
            }
        }
    }

    #[test]
    fn a_flood_of_entries_gives_a_bounded_page() {
        let phases = vec![
            Phase {
                name: "p".to_owned(),
                ..Phase::default()
            };
            100_000
        ];
        let finding = FindingRecord {
            evidence: vec!["e".to_owned(); 1_000],
            ..Default::default()
        };
        let run = Run {
            phases,
            hosts: vec![HostFacts::default(); 10_000],
            ..Run::default()
        };
        let page = render(&run, &[], &vec![finding; 1_000]);
        assert!(page.len() < 2 << 20, "{}", page.len());
    }
}
