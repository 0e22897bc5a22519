//! One row of the scoreboard: what `experiments/ID.toml` says, read and checked.
//!
//! A row sets the document's numbers beside what we run, how far the two may lie apart and why, who
//! judges, and either the steps that a user can run or, in one sentence, what is missing. Everything
//! that can be wrong with a file is found on reading and named with its file and line: a typo in a
//! row must never show up as a row that silently checks nothing.
//!
//! Left out: quantities with units inside checks. A check's numbers are in the unit that the key of
//! its pointer names (`_bits_per_second`, `_ns`, `_bytes`); the document's numbers carry their unit
//! as written in the document and are converted where the two meet.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use units::text::{line_at, plain};

/// One row, as read from its file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// `C1` … `S8`.
    pub id: String,
    /// The document that it comes from.
    pub seed: Seed,
    /// What the document has, in a few words.
    pub title: String,
    /// The part of goodput that has to deliver it.
    pub issue: Area,
    /// Their side.
    pub document: Document,
    /// Our side.
    pub ours: Ours,
    /// What `goodput reproduce ID` runs; empty while `not_yet` says what is missing.
    #[serde(default, rename = "run", deserialize_with = "steps")]
    pub steps: Vec<RunStep>,
    /// What is missing before the row can be run, in one sentence.
    pub not_yet: Option<String>,
    /// What the steps leave out so far, in one sentence: the row is amber at best.
    pub lacks: Option<String>,
    /// Fingerprint of the file's text: tells whether a result was judged by this text.
    #[serde(skip)]
    pub digest: String,
}

/// A seed document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seed {
    /// `000` … `004`.
    pub file: String,
    /// Title, and where it was given.
    pub title: String,
}

/// The part of goodput that owes a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Area {
    /// Pseudo networks of real packets.
    Lab,
    /// Sweeps.
    Measure,
    /// Split TCP.
    Gateway,
    /// Parallel streams, pacing, records.
    Streams,
    /// Cluster fabrics.
    Fabric,
    /// N-body over two sites.
    Cosmo,
    /// Bulk files.
    Copy,
    /// Flow export and collection.
    Flows,
    /// Packets to causes.
    Explain,
    /// Kernels for SIMD, GPU and the GRAPE-DR model.
    Kernel,
    /// What limits a path.
    Doctor,
}

/// What the document says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// One short line for the board.
    pub value: String,
    /// The numbers, machine-readable.
    #[serde(default)]
    pub numbers: Vec<DocumentNumber>,
    /// The document's own words for a number, by its name.
    #[serde(default)]
    pub quotes: BTreeMap<String, String>,
}

/// One number of a document.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DocumentNumber {
    /// Name within the row.
    pub name: String,
    /// The number, or the two ends of a range, or an order or name as text.
    pub value: DocumentValue,
    /// Unit as in the document; empty for a text.
    pub unit: String,
    /// Section, slide, figure, or the other source.
    pub place: String,
    /// How sure the number is.
    pub sure: Sure,
}

/// A value as the document gives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DocumentValue {
    /// One number.
    Number(f64),
    /// From … to.
    Range([f64; 2]),
    /// An order, a list, a name.
    Text(String),
}

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sure {
    /// Stands in the seed document.
    #[serde(rename = "seed")]
    Seed,
    /// Stands in another publication on the same system.
    #[serde(rename = "published")]
    Published,
    /// Follows by arithmetic that the place names.
    #[serde(rename = "computed")]
    Computed,
    /// Remembered; needs a source before it may judge anything.
    #[serde(rename = "from memory, verify")]
    FromMemory,
}

/// What we set beside it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ours {
    /// What is run, on what.
    pub what: String,
    /// Who judges, beside goodput itself: each must have passed a check before the row is green.
    pub observer: Vec<String>,
    /// How far ours may lie from theirs, by the number's name; a number without one is context.
    #[serde(default)]
    pub tolerance: BTreeMap<String, Tolerance>,
    /// What must hold besides numbers, a sentence each.
    #[serde(default)]
    pub accept: Vec<String>,
}

/// How far ours may lie from theirs, and why that far.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "RawTolerance")]
pub struct Tolerance {
    /// The bound.
    pub bound: Bound,
    /// The reason for this bound and no other.
    pub because: String,
}

/// A bound; all numbers but `Rel` in the unit of the document's number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At most this share of the number away.
    Rel(f64),
    /// At most this much away.
    Abs(f64),
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// From … to, ends included.
    Between(f64, f64),
    /// The very value.
    Exact,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTolerance {
    rel: Option<f64>,
    abs: Option<f64>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    between: Option<[f64; 2]>,
    exact: Option<bool>,
    because: String,
}

impl TryFrom<RawTolerance> for Tolerance {
    type Error = String;
    fn try_from(raw: RawTolerance) -> Result<Self, String> {
        let candidates = [
            raw.rel.map(Bound::Rel),
            raw.abs.map(Bound::Abs),
            raw.at_least.map(Bound::AtLeast),
            raw.at_most.map(Bound::AtMost),
            raw.between.map(|[low, high]| Bound::Between(low, high)),
            raw.exact.map(|_| Bound::Exact),
        ];
        let bound = exactly_one(candidates, "rel, abs, at_least, at_most, between, exact")?;
        match bound {
            Bound::Rel(x) | Bound::Abs(x) if !(x.is_finite() && x > 0.0) => {
                return Err("rel and abs must be above 0; for 0 write exact = true".to_owned());
            }
            Bound::Between(low, high)
                if low.partial_cmp(&high) != Some(std::cmp::Ordering::Less) =>
            {
                return Err("between wants the smaller end first".to_owned());
            }
            Bound::Exact if raw.exact == Some(false) => {
                return Err("exact = false says nothing; leave it out".to_owned());
            }
            _ => {}
        }
        if raw.because.trim().is_empty() {
            return Err("a tolerance owes its reason: because = \"...\"".to_owned());
        }
        Ok(Self {
            bound,
            because: raw.because,
        })
    }
}

/// One command of a row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunStep {
    /// Name within the row; part of run names.
    pub name: String,
    /// The same as the file writes it, [`PLACE`] and all.
    #[serde(skip)]
    written: String,
    /// What stands for [`PLACE`], a step each; none is the step as it is written.
    #[serde(default)]
    over: Option<Vec<Scalar>>,
    /// The verb, such as `doctor`; or [`GUEST`] for a part of the script of that virtual machine.
    pub verb: String,
    /// Its arguments, as a user would type them.
    #[serde(default)]
    pub args: Vec<String>,
    /// Which statement of the document this step stands for.
    pub why: String,
    /// What is read off its `run.json`.
    #[serde(default, rename = "check")]
    pub checks: Vec<Check>,
}

impl RunStep {
    /// The command as a user would type it.
    pub fn command(&self) -> String {
        let mut words = match self.verb.as_str() {
            GUEST => vec![SCRIPT.to_owned()],
            verb => vec!["goodput".to_owned(), verb.to_owned()],
        };
        words.extend(self.args.iter().map(|a| {
            if a.is_empty()
                || a.contains(|c: char| c.is_whitespace() || "'\"$`\\*?&;|<>()".contains(c))
            {
                format!("'{}'", a.replace('\'', r"'\''"))
            } else {
                a.clone()
            }
        }));
        words.join(" ")
    }
}

/// Reads `[[run]]`: a step that is written once for several values becomes as many steps.
fn steps<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Vec<RunStep>, D::Error> {
    let mut steps = Vec::new();
    for step in Vec::<RunStep>::deserialize(input)? {
        steps.extend(step.spread().map_err(serde::de::Error::custom)?);
    }
    Ok(steps)
}

impl RunStep {
    /// The step once for each value of `over`, in their order, or as it is.
    ///
    /// # Errors
    ///
    /// `over` is empty, or nothing in the step's name tells its steps apart; or [`PLACE`] stands
    /// where there is nothing to put for it.
    fn spread(self) -> Result<Vec<Self>, String> {
        let written = self.name.clone();
        let Some(values) = self.over.clone() else {
            let has_place = |word: &String| word.contains(PLACE);
            if has_place(&written) || has_place(&self.why) || self.args.iter().any(has_place) {
                return Err(format!("step '{written}': {PLACE} wants over = [...]"));
            }
            return Ok(vec![Self { written, ..self }]);
        };
        if values.is_empty() {
            return Err(format!("step '{written}': over wants at least one value"));
        }
        if !written.contains(PLACE) {
            return Err(format!("step '{written}': over wants {PLACE} in the name"));
        }
        let with = |value: &Scalar| {
            let word = value.to_string();
            let put = |text: &String| text.replace(PLACE, &word);
            let mut checks = self.checks.clone();
            for check in &mut checks {
                if check.op == Op::Equals(Scalar::Text(PLACE.to_owned())) {
                    check.op = Op::Equals(value.clone());
                }
            }
            Self {
                name: put(&self.name),
                written: written.clone(),
                over: None,
                verb: self.verb.clone(),
                args: self.args.iter().map(put).collect(),
                why: put(&self.why),
                checks,
            }
        };
        Ok(values.iter().map(with).collect())
    }
}

/// One reading of a run and what it must be.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawCheck")]
pub struct Check {
    /// What is looked at, in a few words.
    pub name: String,
    /// Where it stands in `run.json`; see [`crate::check::lookup`].
    pub at: String,
    /// What it must be.
    pub op: Op,
    /// The document number that it stands beside.
    pub beside: Option<String>,
    /// Whose reading it is: one of the row's observers, or `goodput`.
    pub observer: String,
    /// A condition for judging at all (the lab kept up): when it fails, the step is not judged
    /// rather than failed.
    pub premise: bool,
}

/// What a reading must be.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Within the row's tolerance around the number that it stands beside.
    Tolerance,
    /// From … to, ends included.
    Between(f64, f64),
    /// At most so many percent away from the reference.
    WithinPercentOf(f64, Reference),
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// At least this share of the reference.
    AtLeastShareOf(f64, Reference),
    /// At most this share of the reference.
    AtMostShareOf(f64, Reference),
    /// The very value.
    Equals(Scalar),
    /// One of several values.
    OneOf(Vec<Scalar>),
}

impl Op {
    /// The other step whose run this needs.
    fn other_step(&self) -> Option<&str> {
        match self {
            Self::WithinPercentOf(_, of)
            | Self::AtLeastShareOf(_, of)
            | Self::AtMostShareOf(_, of) => match of {
                Reference::Other { step, .. } => Some(step),
                _ => None,
            },
            _ => None,
        }
    }
}

/// What a reading is held against.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "RawReference")]
pub enum Reference {
    /// A number, in the unit of the reading.
    Constant(f64),
    /// Another place in the same `run.json`.
    Pointer(String),
    /// A place in the `run.json` of another step of the row.
    Other {
        /// Name of that step.
        step: String,
        /// Where it stands there.
        at: String,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawReference {
    Constant(f64),
    Place(String),
}

impl TryFrom<RawReference> for Reference {
    type Error = String;
    fn try_from(raw: RawReference) -> Result<Self, String> {
        let place = match raw {
            RawReference::Constant(x) => return Ok(Self::Constant(x)),
            RawReference::Place(place) => place,
        };
        if place.starts_with('/') {
            return Ok(Self::Pointer(place));
        }
        match place.split_once(":/") {
            Some((step, at)) if !step.is_empty() => Ok(Self::Other {
                step: step.to_owned(),
                at: format!("/{at}"),
            }),
            _ => Err(format!(
                "'{place}' is no number, no JSON pointer such as /path/achievable_bits_per_second, \
                 no other step's such as off:/path/achievable_bits_per_second"
            )),
        }
    }
}

/// A value that can be compared for equality.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// Truth.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A word.
    Text(String),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(x) => write!(f, "{x}"),
            Self::Number(x) => write!(f, "{x}"),
            Self::Text(x) => f.write_str(x),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCheck {
    name: String,
    at: String,
    tolerance: Option<bool>,
    between: Option<[f64; 2]>,
    within_percent_of: Option<(f64, Reference)>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    at_least_share_of: Option<(f64, Reference)>,
    at_most_share_of: Option<(f64, Reference)>,
    equals: Option<Scalar>,
    one_of: Option<Vec<Scalar>>,
    beside: Option<String>,
    observer: String,
    #[serde(default)]
    premise: bool,
}

impl TryFrom<RawCheck> for Check {
    type Error = String;
    fn try_from(raw: RawCheck) -> Result<Self, String> {
        let candidates = [
            raw.tolerance.map(|_| Op::Tolerance),
            raw.between.map(|[low, high]| Op::Between(low, high)),
            raw.within_percent_of
                .map(|(percent, of)| Op::WithinPercentOf(percent, of)),
            raw.at_least.map(Op::AtLeast),
            raw.at_least_share_of
                .map(|(share, of)| Op::AtLeastShareOf(share, of)),
            raw.at_most.map(Op::AtMost),
            raw.at_most_share_of
                .map(|(share, of)| Op::AtMostShareOf(share, of)),
            raw.equals.map(Op::Equals),
            raw.one_of.map(Op::OneOf),
        ];
        let names = "tolerance, between, within_percent_of, at_least, at_most, at_least_share_of, \
                     at_most_share_of, equals, one_of";
        let op = exactly_one(candidates, names)?;
        let problem = match &op {
            _ if !raw.at.starts_with('/') => Some("at wants a JSON pointer such as /verdict/cause"),
            Op::Tolerance if raw.tolerance == Some(false) || raw.beside.is_none() => {
                Some("tolerance = true wants beside = \"the number's name\"")
            }
            Op::Between(low, high) if low.partial_cmp(high) != Some(std::cmp::Ordering::Less) => {
                Some("between wants the smaller end first")
            }
            Op::WithinPercentOf(x, _) | Op::AtLeastShareOf(x, _) | Op::AtMostShareOf(x, _)
                if !(x.is_finite() && *x > 0.0) =>
            {
                Some("percent and share must be above 0")
            }
            Op::OneOf(values) if values.is_empty() => Some("one_of wants at least one value"),
            _ => None,
        };
        match problem {
            Some(problem) => Err(format!("check '{}': {problem}", raw.name)),
            None => Ok(Self {
                name: raw.name,
                at: raw.at,
                op,
                beside: raw.beside,
                observer: raw.observer,
                premise: raw.premise,
            }),
        }
    }
}

fn exactly_one<T, const N: usize>(candidates: [Option<T>; N], names: &str) -> Result<T, String> {
    let mut given = candidates.into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(format!("wants one of {names}")),
        (Some(_), Some(_)) => Err(format!("wants only one of {names}")),
    }
}

/// Why a row cannot be used: its file, the line, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimentError {
    file: String,
    line: usize,
    problem: String,
}

impl fmt::Display for ExperimentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.problem)
    }
}

impl std::error::Error for ExperimentError {}

impl Experiment {
    /// Reads a row; `file` is named in errors and its stem must be the row's id.
    pub fn parse(file: &str, text: &str) -> Result<Self, ExperimentError> {
        let mut row: Self = spans::from_str(text).map_err(|error| ExperimentError {
            file: file.to_owned(),
            line: line_at(text, error.at()),
            problem: plain(error.message()).into_owned(),
        })?;
        row.digest = digest(text);
        row.inconsistency(file).map_or(Ok(row), |(near, problem)| {
            Err(ExperimentError {
                file: file.to_owned(),
                line: line_of(text, &near),
                problem: plain(&problem).into_owned(),
            })
        })
    }

    /// The number of that name.
    pub fn number(&self, name: &str) -> Option<&DocumentNumber> {
        self.document.numbers.iter().find(|n| n.name == name)
    }

    /// The first thing that does not fit together, and a text of the file near it.
    fn inconsistency(&self, file: &str) -> Option<(String, String)> {
        let stem = file
            .rsplit('/')
            .next()
            .and_then(|name| name.strip_suffix(".toml"));
        if stem != Some(self.id.as_str()) {
            return Some((
                "id".into(),
                format!("id '{}' is not the file's name", self.id),
            ));
        }
        if seed_of(&self.id) != Some(self.seed.file.as_str()) {
            let problem = format!("row {} does not come from seed {}", self.id, self.seed.file);
            return Some(("seed".into(), problem));
        }
        if self.steps.is_empty() == self.not_yet.is_none() {
            let problem = "wants either [[run]] steps or not_yet = \"what is missing\"";
            return Some(("not_yet".into(), problem.into()));
        }
        if self.lacks.is_some() && self.steps.is_empty() {
            let problem = "wants [[run]] steps beside it; without them it is not_yet";
            return Some(("lacks".into(), problem.into()));
        }
        if self.ours.observer.is_empty() {
            return Some((
                "observer".into(),
                "names nobody who judges: observer = [...]".into(),
            ));
        }
        if self.ours.tolerance.is_empty() && self.ours.accept.is_empty() {
            return Some((
                "[ours]".into(),
                "wants a tolerance or an accept sentence".into(),
            ));
        }
        self.number_problem().or_else(|| self.check_problem())
    }

    fn number_problem(&self) -> Option<(String, String)> {
        let mut names = BTreeSet::new();
        for number in &self.document.numbers {
            let near = format!("\"{}\"", number.name);
            let finite = match &number.value {
                DocumentValue::Number(x) => x.is_finite(),
                DocumentValue::Range([low, high]) => low.is_finite() && high > low,
                DocumentValue::Text(_) => true,
            };
            if !names.insert(number.name.as_str()) {
                return Some((
                    near,
                    format!("the number '{}' stands here twice", number.name),
                ));
            }
            if !finite {
                return Some((
                    near,
                    format!("'{}' is not a number or rising range", number.name),
                ));
            }
            if number.sure == Sure::Seed && !self.document.quotes.contains_key(&number.name) {
                let problem = format!("'{}' comes from the seed: quote its words", number.name);
                return Some((near, problem));
            }
        }
        if let Some(name) = self
            .document
            .quotes
            .keys()
            .find(|name| self.number(name).is_none())
        {
            return Some((
                name.clone(),
                format!("no document number is named '{name}'"),
            ));
        }
        for (name, tolerance) in &self.ours.tolerance {
            let Some(number) = self.number(name) else {
                return Some((
                    name.clone(),
                    format!("no document number is named '{name}'"),
                ));
            };
            let text = matches!(number.value, DocumentValue::Text(_));
            if text != (tolerance.bound == Bound::Exact) && text {
                return Some((
                    name.clone(),
                    format!("'{name}' is a text: only exact fits it"),
                ));
            }
        }
        None
    }

    fn check_problem(&self) -> Option<(String, String)> {
        let mut names = BTreeSet::new();
        for step in &self.steps {
            if !names.insert(step.name.as_str()) {
                return Some((
                    step.written.clone(),
                    format!("step '{}' stands here twice", step.name),
                ));
            }
            if step.checks.iter().all(|check| check.premise) {
                let problem = format!("step '{}' checks nothing", step.name);
                return Some((step.written.clone(), problem));
            }
            for check in &step.checks {
                if let Some(problem) = self.one_check_problem(check) {
                    return Some((
                        check.name.clone(),
                        format!("check '{}': {problem}", check.name),
                    ));
                }
            }
        }
        let judges = |name: &String| {
            self.steps
                .iter()
                .flat_map(|step| &step.checks)
                .any(|check| check.observer == *name)
        };
        let idle = self.ours.observer.iter().find(|name| !judges(name));
        // Who judges what is still left out judges nothing yet.
        idle.filter(|_| !self.steps.is_empty() && self.lacks.is_none())
            .map(|name| (name.clone(), format!("observer '{name}' judges no check")))
    }

    fn one_check_problem(&self, check: &Check) -> Option<String> {
        if check.observer != OURSELVES && !self.ours.observer.contains(&check.observer) {
            return Some(format!(
                "'{}' is not an observer of this row",
                check.observer
            ));
        }
        if let Some(step) = check.op.other_step()
            && !self.steps.iter().any(|s| s.name == step)
        {
            return Some(format!("no step is named '{step}'"));
        }
        // Two could wait for each other.
        if check.premise && check.op.other_step().is_some() {
            return Some("a premise is judged on its own step's run".to_owned());
        }
        let name = check.beside.as_ref()?;
        let Some(number) = self.number(name) else {
            return Some(format!("no document number is named '{name}'"));
        };
        if check.op != Op::Tolerance {
            return None;
        }
        if !self.ours.tolerance.contains_key(name) {
            return Some(format!("'{name}' has no tolerance"));
        }
        let (_, theirs) = unit_scale(&number.unit);
        let ours = Dimension::of_key(&check.at);
        (theirs != ours).then(|| format!("'{name}' in {} cannot be held against it", number.unit))
    }
}

/// What a number measures, where that matters for comparing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Bits per second.
    Rate,
    /// Nanoseconds.
    Time,
    /// Bytes.
    Size,
    /// A count, share, ratio or anything else.
    Plain,
}

impl Dimension {
    /// The dimension that the last key of a pointer names.
    pub fn of_key(pointer: &str) -> Self {
        match pointer {
            p if p.ends_with("_bits_per_second") => Self::Rate,
            p if p.ends_with("_ns") => Self::Time,
            p if p.ends_with("_bytes") => Self::Size,
            _ => Self::Plain,
        }
    }
}

/// How many base units (bits/s, ns, bytes) one of `unit` is, and what it measures.
pub fn unit_scale(unit: &str) -> (f64, Dimension) {
    UNITS
        .iter()
        .find(|(name, ..)| *name == unit)
        .map_or((1.0, Dimension::Plain), |u| (u.1, u.2))
}

/// The seed that a row's letter stands for.
pub fn seed_of(id: &str) -> Option<&'static str> {
    SEEDS
        .iter()
        .find(|(letter, _)| id.starts_with(*letter))
        .map(|(_, file)| *file)
}

/// FNV-1a, 64 bits: tells texts apart that people edit; no defence against forgers.
/// <http://www.isthe.com/chongo/tech/comp/fnv/>
fn digest(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The first line that holds `near`; the first of all when none does.
fn line_of(text: &str, near: &str) -> usize {
    text.lines()
        .position(|line| line.contains(near))
        .map_or(1, |index| index + 1)
}

/// Where a value of a step's `over` is put: in its name, arguments, reason, and as what a check equals.
const PLACE: &str = "{}";
/// The verb of steps that another kernel than this machine's is booted for.
pub const GUEST: &str = "guest";
/// Where the script that boots it lies in the source.
const SCRIPT: &str = "bench/netem-guest/run.sh";
/// The name under which goodput's own readings stand.
pub const OURSELVES: &str = "goodput";

const SEEDS: &[(char, &str)] = &[
    ('C', "000"),
    ('T', "001"),
    ('N', "002"),
    ('O', "003"),
    ('S', "004"),
];

const UNITS: &[(&str, f64, Dimension)] = &[
    ("b/s", 1.0, Dimension::Rate),
    ("kb/s", 1e3, Dimension::Rate),
    ("Mb/s", 1e6, Dimension::Rate),
    ("Gb/s", 1e9, Dimension::Rate),
    ("MB/s", 8e6, Dimension::Rate),
    ("GB/s", 8e9, Dimension::Rate),
    ("MiB/s", 8_388_608.0, Dimension::Rate),
    ("ns", 1.0, Dimension::Time),
    ("us", 1e3, Dimension::Time),
    ("ms", 1e6, Dimension::Time),
    ("s", 1e9, Dimension::Time),
    ("h", 3.6e12, Dimension::Time),
    ("B", 1.0, Dimension::Size),
    ("kB", 1e3, Dimension::Size),
    ("KiB", 1024.0, Dimension::Size),
    ("MiB", 1_048_576.0, Dimension::Size),
    ("GiB", 1_073_741_824.0, Dimension::Size),
    ("%", 0.01, Dimension::Plain),
];

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = include_str!("testdata/row.toml");

    fn parse(text: &str) -> Result<Experiment, String> {
        Experiment::parse("experiments/N1.toml", text).map_err(|e| e.to_string())
    }

    /// The sound row with one text changed, which must be there.
    fn changed(from: &str, to: &str) -> String {
        assert!(ROW.contains(from), "{from}");
        parse(&ROW.replacen(from, to, 1)).unwrap_err()
    }

    #[test]
    fn a_sound_row_reads() {
        let row = parse(ROW).unwrap();
        assert_eq!(
            row.number("scp").unwrap().value,
            DocumentValue::Range([2.0, 5.0])
        );
        assert_eq!(row.ours.tolerance["eight"].bound, Bound::Rel(0.1));
        assert_eq!(row.steps[0].command(), "goodput doctor lab:paths/x.toml");
        assert_eq!(row.steps[0].checks[0].op, Op::Equals(Scalar::Bool(true)));
        assert_eq!(row.digest.len(), 16);
    }

    #[test]
    fn errors_name_file_and_line() {
        assert_eq!(
            changed("sure = \"seed\"", "sure = \"maybe\""),
            "experiments/N1.toml:12: unknown variant `maybe`, expected one of `seed`, `published`, \
             `computed`, `from memory, verify`"
        );
        let typo = changed("why = ", "wyh = ");
        assert!(
            typo.starts_with("experiments/N1.toml:33: unknown field `wyh`"),
            "{typo}"
        );
        assert_eq!(
            changed("beside = \"scp\"", "beside = \"spc\""),
            "experiments/N1.toml:46: check 'before': no document number is named 'spc'"
        );
    }

    #[test]
    fn a_tolerance_has_one_bound_and_a_reason() {
        assert!(changed("rel = 0.1,", "").contains("wants one of rel, abs"));
        assert!(changed("rel = 0.1,", "rel = 0.1, abs = 1,").contains("wants only one of"));
        assert!(changed("rel = 0.1,", "rel = 0.0,").contains("above 0"));
        assert!(changed("rel = 0.1,", "rel = nan,").contains("above 0"));
        assert!(changed("rel = 0.1,", "between = [5, 2],").contains("smaller end first"));
        assert!(changed("because = \"as they\"", "because = \" \"").contains("owes its reason"));
    }

    #[test]
    fn a_check_has_one_operation_that_fits() {
        assert!(changed("equals = true\n", "").contains("wants one of tolerance"));
        assert!(
            changed("equals = true\n", "equals = true\nat_least = 1\n").contains("only one of")
        );
        assert!(changed("at = \"/phases", "at = \"phases").contains("JSON pointer"));
        assert!(changed("[5, \"/ph", "[0, \"/ph").contains("above 0"));
        assert!(changed("[5, \"/ph", "[5, \"ph").contains("no JSON pointer"));
        assert!(changed("[5, \"/ph", "[5, \"tuned:/ph").contains("no step is named 'tuned'"));
        let of_another = "[5, \"untuned:/phases/0/goodput_bits_per_second\"]\npremise = true";
        let own = "[5, \"/phases/0/goodput_bits_per_second\"]";
        assert!(changed(own, of_another).contains("its own step's run"));
        assert!(changed("beside = \"scp\"\n", "").contains("wants beside"));
        assert!(
            changed("goodput_bits_per_second\"\ntol", "ramp_ns\"\ntol").contains("in Mb/s cannot")
        );
        assert!(
            changed("observer = \"iperf3\"", "observer = \"iperf9\"").contains("not an observer")
        );
    }

    #[test]
    fn an_observer_of_a_row_that_runs_must_judge_something() {
        let error = changed("[\"iperf3\"]", "[\"iperf3\", \"tshark\"]");
        assert!(
            error.ends_with(": observer 'tshark' judges no check"),
            "{error}"
        );
    }

    #[test]
    fn a_row_runs_or_says_what_is_missing_never_both_never_neither() {
        assert!(changed("issue =", "not_yet = \"x\"\nissue =").contains("either [[run]] steps or"));
        let neither = ROW.split("[[run]]").next().unwrap();
        assert!(
            parse(neither)
                .unwrap_err()
                .contains("either [[run]] steps or")
        );
        assert!(parse(&neither.replacen("issue =", "not_yet = \"x\"\nissue =", 1)).is_ok());
    }

    #[test]
    fn a_row_belongs_to_its_file_and_seed() {
        assert!(changed("id = \"N1\"", "id = \"N2\"").contains("not the file's name"));
        assert!(changed("file = \"002\"", "file = \"001\"").contains("does not come from seed"));
    }

    #[test]
    fn a_seed_number_quotes_the_seed() {
        assert!(changed("scp = \"scp 2-5 Mbps\"\n", "").contains("quote its words"));
    }

    /// The sound row with its step written once for three values.
    fn swept() -> String {
        ROW.replace(
            "name = \"untuned\"",
            "name = \"with-{}\"\nover = [1, \"two\", 8]",
        )
        .replace("the untuned host", "with {} streams")
        .replace("paths/x.toml\"]", "paths/x.toml\", \"-s\", \"{}\"]")
        .replace("equals = true\n", "equals = \"{}\"\n")
    }

    #[test]
    fn a_step_over_several_values_is_as_many_steps_in_their_order() {
        let row = parse(&swept()).unwrap();
        let said = |step: &RunStep| (step.name.clone(), step.command(), step.why.clone());
        let of = |value: &str| {
            (
                format!("with-{value}"),
                format!("goodput doctor lab:paths/x.toml -s {value}"),
                format!("with {value} streams"),
            )
        };
        let steps: Vec<_> = row.steps.iter().map(said).collect();
        assert_eq!(steps, [of("1"), of("two"), of("8")]);
        let equal: Vec<_> = row.steps.iter().map(|s| s.checks[0].op.clone()).collect();
        let text = |word: &str| Op::Equals(Scalar::Text(word.to_owned()));
        assert_eq!(equal[0], Op::Equals(Scalar::Number(1.0)));
        assert_eq!(equal[1..], [text("two"), Op::Equals(Scalar::Number(8.0))]);
        // Only where it stands alone is a value put: the rest of each check is as written.
        assert!(row.steps.iter().all(|s| s.checks.len() == 3));
        assert_eq!(row.steps[2].checks[1].op, Op::Tolerance);
    }

    #[test]
    fn values_and_the_places_for_them_come_together() {
        let error = |from: &str, to: &str| {
            assert!(swept().contains(from), "{from}");
            parse(&swept().replacen(from, to, 1)).unwrap_err()
        };
        let over = "over = [1, \"two\", 8]\n";
        assert!(error(over, "").contains("step 'with-{}': {} wants over"));
        assert!(error(over, "over = []\n").contains("at least one value"));
        assert!(error("with-{}\"", "with\"").contains("wants {} in the name"));
        let twice = error(over, "over = [1, \"two\", 1]\n");
        assert_eq!(
            twice,
            "experiments/N1.toml:34: step 'with-1' stands here twice"
        );
    }

    #[test]
    fn a_command_is_quoted_for_the_shell() {
        let mut step = parse(ROW).unwrap().steps.remove(0);
        step.args = vec!["a b".into(), "it's".into(), "plain".into()];
        assert_eq!(step.command(), r"goodput doctor 'a b' 'it'\''s' plain");
        step.verb = GUEST.to_owned();
        step.args = vec!["beside".into()];
        assert_eq!(step.command(), "bench/netem-guest/run.sh beside");
    }
}
