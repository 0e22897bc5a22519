//! The text format of OpenMetrics 1.0, a family at a time.
//!
//! Left out: timestamps, exemplars and the types that nothing here has (state sets, summaries,
//! gauge histograms).

use std::fmt::{Display, Write as _};

/// Type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Labels that say what something is.
    Info,
    /// A value that rises and falls.
    Gauge,
    /// A value that only grows.
    Counter,
    /// Counts by upper bounds.
    Histogram,
}

/// Text that grows by families.
///
/// ```
/// use units::openmetrics::{Kind, Text};
///
/// let mut text = Text::default();
/// let mut carried = text.family("carried_bytes", Kind::Counter, "bytes", "Bytes carried.");
/// carried.row(&[("direction", "outward")], 7);
/// assert_eq!(
///     text.end(),
///     "# TYPE carried_bytes counter\n# UNIT carried_bytes bytes\n# HELP carried_bytes Bytes carried.\n\
///      carried_bytes_total{direction=\"outward\"} 7\n# EOF\n"
/// );
/// ```
#[derive(Clone, Debug, Default)]
pub struct Text {
    text: String,
}

/// Rows of the family that was begun last.
#[derive(Debug)]
pub struct Rows<'a> {
    text: &'a mut String,
    name: String,
    suffix: &'static str,
}

impl Text {
    /// Begins a family. `name` ends with `unit` where there is one.
    pub fn family(&mut self, name: &str, kind: Kind, unit: &str, help: &str) -> Rows<'_> {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "# TYPE {name} {}", kind.name());
        if !unit.is_empty() {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.text, "# HELP {name} {help}");
        Rows {
            text: &mut self.text,
            name: name.to_owned(),
            suffix: kind.suffix(),
        }
    }

    /// The whole text with its end mark.
    pub fn end(mut self) -> String {
        self.text += "# EOF\n";
        self.text
    }
}

impl Rows<'_> {
    /// Adds a row with the suffix that the family's type has.
    pub fn row(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.row_of(self.suffix, labels, value);
    }

    /// Adds a row with a suffix of its own, such as a histogram's `_bucket`.
    pub fn row_of(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.text, "{}{suffix}", self.name);
        for (number, (name, label)) in labels.iter().enumerate() {
            let before = if number == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"{}\"", escaped(label));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Info => "_info",
            Self::Counter => "_total",
            Self::Gauge | Self::Histogram => "",
        }
    }
}

/// A label's value: a backslash, a quotation mark and a line end are escaped.
fn escaped(label: &str) -> String {
    let label = label.replace('\\', "\\\\").replace('"', "\\\"");
    label.replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_its_suffix_and_a_family_without_a_unit_no_unit_line() {
        let mut text = Text::default();
        text.family("build", Kind::Info, "", "The program.")
            .row(&[("version", "1"), ("protocol", "2")], 1);
        text.family("open", Kind::Gauge, "", "Open now.")
            .row(&[], 0.5);
        let mut held = text.family("held_seconds", Kind::Histogram, "seconds", "Held.");
        held.row_of("_bucket", &[("le", "+Inf")], 3);
        held.row_of("_count", &[], 3);
        assert_eq!(
            text.end(),
            "# TYPE build info\n\
             # HELP build The program.\n\
             build_info{version=\"1\",protocol=\"2\"} 1\n\
             # TYPE open gauge\n\
             # HELP open Open now.\n\
             open 0.5\n\
             # TYPE held_seconds histogram\n\
             # UNIT held_seconds seconds\n\
             # HELP held_seconds Held.\n\
             held_seconds_bucket{le=\"+Inf\"} 3\n\
             held_seconds_count 3\n\
             # EOF\n"
        );
    }

    #[test]
    fn a_label_cannot_end_its_quotation_or_its_line() {
        let mut text = Text::default();
        text.family("link", Kind::Gauge, "", "A link.")
            .row(&[("name", "a\\b\"c\nd")], 1);
        assert!(text.end().contains("link{name=\"a\\\\b\\\"c\\nd\"} 1\n"));
    }
}
