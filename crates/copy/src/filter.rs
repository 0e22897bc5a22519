//! Which names of a tree are copied: patterns to include and exclude, first match wins.
//!
//! The language is that of rsync(1), "FILTER RULES", as far as `--include`, `--exclude` and `--exclude-from` go:
//!
//! * `*` is any run of bytes without a slash, `**` any run, `?` a byte but a slash, `[a-z]` one of a class.
//! * `/name` is tried from the top of what is copied, `name` anywhere.
//! * `name/` is for folders only; `name/***` for the folder and all in it.
//! * A pattern without a slash within and without `**` is for the last name of a path, any other for its end.
//! * A backslash takes a wildcard's meaning away, where there are wildcards at all.
//!
//! What is in a folder that is excluded is never looked at. Bytes are compared, case and all. A comparison costs at most
//! the pattern's length times the path's, whatever both are: every way through a pattern is followed at once. Patterns without
//! wildcards for one path from the top, or for a last name, are looked up, however many there are.

use std::collections::HashMap;

use thiserror::Error;

use crate::entry::RelPath;

/// The longest pattern in bytes.
pub const PATTERN_BYTES_MOST: usize = 4_096;
/// The most rules of one filter.
pub const RULES_MOST: usize = 262_144;

/// Rules in order. Without any, everything is copied.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    rules: Vec<Rule>,
    /// Rules for this path, and for this last name, by their places among all.
    paths: HashMap<Box<[u8]>, Vec<usize>>,
    names: HashMap<Box<[u8]>, Vec<usize>>,
    /// All others.
    others: Vec<usize>,
}

/// Why a pattern is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FilterError {
    /// Nothing to compare with.
    #[error("an empty pattern")]
    Empty,
    /// Over [`PATTERN_BYTES_MOST`].
    #[error("a pattern of more than {PATTERN_BYTES_MOST} bytes")]
    Long,
    /// Over [`RULES_MOST`].
    #[error("more than {RULES_MOST} patterns")]
    Many,
    /// `[` without its `]`.
    #[error("a pattern with [ and no ]; write \\[ for the letter")]
    Unclosed,
}

#[derive(Clone, Debug)]
struct Rule {
    include: bool,
    folders_only: bool,
    pattern: Pattern,
}

impl Filter {
    /// No rule: everything is copied.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Adds what `--include` was given; `- ` in front makes an exclude of it.
    ///
    /// # Errors
    /// As [`FilterError`] tells.
    pub fn include(&mut self, pattern: &[u8]) -> Result<(), FilterError> {
        self.add(true, pattern)
    }

    /// Adds what `--exclude` was given; `+ ` in front makes an include of it.
    ///
    /// # Errors
    /// As [`FilterError`] tells.
    pub fn exclude(&mut self, pattern: &[u8]) -> Result<(), FilterError> {
        self.add(false, pattern)
    }

    /// Adds a file's lines, as of `--exclude-from` (or `--include-from` with `include`): `+ ` or `- ` in front, blank lines
    /// and those that begin with `#` or `;` are passed over, `!` forgets all rules so far.
    ///
    /// # Errors
    /// The number of the line, from 1, and what is wrong with it.
    pub fn lines(&mut self, include: bool, text: &[u8]) -> Result<(), (usize, FilterError)> {
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            match line {
                b"" | [b'#' | b';', ..] => {}
                b"!" => *self = Self::new(),
                _ => self
                    .add(include, line)
                    .map_err(|error| (index + 1, error))?,
            }
        }
        Ok(())
    }

    fn add(&mut self, include: bool, pattern: &[u8]) -> Result<(), FilterError> {
        let (include, pattern) = match pattern {
            [b'+', b' ', rest @ ..] => (true, rest),
            [b'-', b' ', rest @ ..] => (false, rest),
            _ => (include, pattern),
        };
        if pattern.len() > PATTERN_BYTES_MOST {
            return Err(FilterError::Long);
        }
        if let Some(folder) = pattern.strip_suffix(b"/***") {
            self.push(include, &[folder, b"/"].concat())?;
            return self.push(include, &[folder, b"/**"].concat());
        }
        self.push(include, pattern)
    }

    fn push(&mut self, include: bool, pattern: &[u8]) -> Result<(), FilterError> {
        if self.rules.len() == RULES_MOST {
            return Err(FilterError::Many);
        }
        let (folders_only, pattern) = match pattern.strip_suffix(b"/") {
            Some(rest) => (true, rest),
            None => (false, pattern),
        };
        let pattern = Pattern::new(pattern)?;
        let place = self.rules.len();
        match &pattern.literal {
            Some(path) if pattern.anchored => {
                self.paths.entry(path.clone()).or_default().push(place)
            }
            Some(name) if pattern.name_only => {
                self.names.entry(name.clone()).or_default().push(place)
            }
            _ => self.others.push(place),
        }
        self.rules.push(Rule {
            include,
            folders_only,
            pattern,
        });
        Ok(())
    }

    /// Whether `path` is copied, given that the folder it is in is. The top is.
    pub fn admits(&self, path: &RelPath, is_folder: bool) -> bool {
        if path.is_top() {
            return true;
        }
        let (bytes, name) = (path.as_bytes(), last_name(path.as_bytes()));
        let is_for = |place: &&usize| is_folder || !self.rules[**place].folders_only;
        let looked_up = [self.paths.get(bytes), self.names.get(name)];
        let exact = looked_up.into_iter().flatten();
        let exact = exact.filter_map(|places| places.iter().find(is_for)).min();
        let before = exact.map_or(self.rules.len(), |place| *place);
        let mut tried = self.others.iter().take_while(|place| **place < before);
        let first = tried
            .find(|place| is_for(place) && self.rules[**place].pattern.matches(bytes))
            .or(exact);
        first.is_none_or(|place| self.rules[*place].include)
    }

    /// Whether `path` and every folder it is in are copied: for one who did not come down to it.
    pub fn admits_all_the_way(&self, path: &RelPath, is_folder: bool) -> bool {
        if self.rules.is_empty() {
            return true;
        }
        let above = |path: &RelPath| path.split().map(|(folder, _)| folder);
        let mut folders = std::iter::successors(above(path), above);
        folders.all(|folder| self.admits(&folder, true)) && self.admits(path, is_folder)
    }
}

fn last_name(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    &path[slash.map_or(0, |slash| slash + 1)..]
}

/// What one step of a pattern takes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// This byte.
    Byte(u8),
    /// Any byte but a slash.
    One,
    /// One of 256 bits.
    Class(Box<[u64; 4]>),
    /// Any run without a slash.
    Run,
    /// Any run.
    Deep,
}

#[derive(Clone, Debug)]
struct Pattern {
    steps: Vec<Step>,
    /// All steps, where they are bytes only: the common case.
    literal: Option<Box<[u8]>>,
    anchored: bool,
    /// Compared with the last name only.
    name_only: bool,
}

impl Pattern {
    fn new(pattern: &[u8]) -> Result<Self, FilterError> {
        let (anchored, mut body) = match pattern.strip_prefix(b"/") {
            Some(rest) => (true, rest),
            None => (false, pattern),
        };
        // A pattern that is not anchored is tried below every folder anyway.
        while !anchored && body.starts_with(b"**/") {
            body = &body[3..];
        }
        if body.is_empty() {
            return Err(FilterError::Empty);
        }
        let wild = body.iter().any(|byte| b"*?[".contains(byte));
        let steps = match wild {
            true => parse(body)?,
            false => body.iter().copied().map(Step::Byte).collect(),
        };
        let name_only = !anchored && !body.contains(&b'/') && !steps.contains(&Step::Deep);
        let bytes = steps.iter().map(|step| match step {
            Step::Byte(byte) => Some(*byte),
            _ => None,
        });
        let literal = bytes.collect();
        Ok(Self {
            steps,
            literal,
            anchored,
            name_only,
        })
    }

    fn matches(&self, path: &[u8]) -> bool {
        let text = match self.name_only {
            true => last_name(path),
            false => path,
        };
        match &self.literal {
            Some(literal) if self.anchored || self.name_only => text == &literal[..],
            Some(literal) => {
                let above = text.strip_suffix(&literal[..]);
                above.is_some_and(|above| above.is_empty() || above.ends_with(b"/"))
            }
            None => self.follow(text),
        }
    }

    /// Follows all ways through the steps at once. A set bit is a step that may come next.
    fn follow(&self, text: &[u8]) -> bool {
        let end = self.steps.len();
        let mut now = Bits::new(end + 1);
        let mut then = Bits::new(end + 1);
        self.reach(&mut now, 0);
        for (index, byte) in text.iter().enumerate() {
            then.clear();
            now.each(|at| self.take(at, *byte, &mut then));
            let begins_name = *byte == b'/' && index + 1 < text.len();
            if begins_name && !self.anchored && !self.name_only {
                self.reach(&mut then, 0);
            }
            std::mem::swap(&mut now, &mut then);
            if now.is_empty() && (self.anchored || self.name_only) {
                return false;
            }
        }
        now.has(end)
    }

    /// Sets `at` and, as a run may be empty, what follows it.
    fn reach(&self, bits: &mut Bits, mut at: usize) {
        bits.set(at);
        while matches!(self.steps.get(at), Some(Step::Run | Step::Deep)) {
            at += 1;
            bits.set(at);
        }
    }

    fn take(&self, at: usize, byte: u8, then: &mut Bits) {
        match self.steps.get(at) {
            Some(Step::Byte(wanted)) if *wanted == byte => self.reach(then, at + 1),
            Some(Step::One) if byte != b'/' => self.reach(then, at + 1),
            Some(Step::Class(class)) if has(class, byte) && byte != b'/' => {
                self.reach(then, at + 1)
            }
            Some(Step::Run) if byte != b'/' => self.reach(then, at),
            Some(Step::Deep) => self.reach(then, at),
            _ => {}
        }
    }
}

fn parse(body: &[u8]) -> Result<Vec<Step>, FilterError> {
    let mut steps = Vec::with_capacity(body.len());
    let mut rest = body;
    while let [byte, after @ ..] = rest {
        rest = after;
        match byte {
            b'\\' => {
                let (byte, after) = rest.split_first().unwrap_or((&b'\\', &[]));
                steps.push(Step::Byte(*byte));
                rest = after;
            }
            b'?' => steps.push(Step::One),
            b'*' => {
                let stars = rest.iter().take_while(|byte| **byte == b'*').count();
                rest = &rest[stars..];
                let step = if stars > 0 { Step::Deep } else { Step::Run };
                if steps.last() != Some(&step) {
                    steps.push(step);
                }
            }
            b'[' => {
                let (class, after) = parse_class(rest)?;
                steps.push(Step::Class(class));
                rest = after;
            }
            byte => steps.push(Step::Byte(*byte)),
        }
    }
    Ok(steps)
}

/// What follows a `[`: `a-z`, `!` or `^` in front for all others, `]` first for itself, `[:digit:]` and its like.
fn parse_class(mut rest: &[u8]) -> Result<(Box<[u64; 4]>, &[u8]), FilterError> {
    let mut class = Box::new([0; 4]);
    let negated = matches!(rest, [b'!' | b'^', ..]);
    rest = &rest[usize::from(negated)..];
    let mut first = true;
    loop {
        let (low, after) = match rest {
            [] => return Err(FilterError::Unclosed),
            [b']', after @ ..] if !first => {
                if negated {
                    class.iter_mut().for_each(|word: &mut u64| *word = !*word);
                }
                return Ok((class, after));
            }
            [b'[', b':', after @ ..] if named(after).is_some() => {
                let (is, length) = named(after).ok_or(FilterError::Unclosed)?;
                (0..=u8::MAX)
                    .filter(is)
                    .for_each(|byte| add(&mut class, byte));
                rest = &after[length..];
                first = false;
                continue;
            }
            [b'\\', byte, after @ ..] | [byte, after @ ..] => (*byte, after),
        };
        first = false;
        let (high, after) = match after {
            [b'-', b'\\', high, after @ ..] => (*high, after),
            [b'-', high, after @ ..] if *high != b']' => (*high, after),
            _ => (low, after),
        };
        (low..=high).for_each(|byte| add(&mut class, byte));
        rest = after;
    }
}

/// Whether a byte is of a class.
type IsOf = fn(&u8) -> bool;

/// A class by name (POSIX.1, 9.3.5), ASCII only, and the bytes its name takes with `:]`.
fn named(rest: &[u8]) -> Option<(IsOf, usize)> {
    let all: [(&[u8], IsOf); 9] = [
        (b"alnum:]", u8::is_ascii_alphanumeric),
        (b"alpha:]", u8::is_ascii_alphabetic),
        (b"digit:]", u8::is_ascii_digit),
        (b"lower:]", u8::is_ascii_lowercase),
        (b"upper:]", u8::is_ascii_uppercase),
        (b"punct:]", u8::is_ascii_punctuation),
        (b"cntrl:]", u8::is_ascii_control),
        (b"xdigit:]", u8::is_ascii_hexdigit),
        (b"space:]", |byte| {
            byte.is_ascii_whitespace() || *byte == 0x0b
        }),
    ];
    let found = all.into_iter().find(|(name, _)| rest.starts_with(name));
    found.map(|(name, is)| (is, name.len()))
}

fn add(class: &mut [u64; 4], byte: u8) {
    class[usize::from(byte / 64)] |= 1 << (byte % 64);
}

fn has(class: &[u64; 4], byte: u8) -> bool {
    class[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
}

/// A set of small numbers.
#[derive(Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(most: usize) -> Self {
        Self(vec![0; most.div_ceil(64)])
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }

    fn set(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    fn each(&self, mut with: impl FnMut(usize)) {
        for (index, word) in self.0.iter().enumerate() {
            let mut left = *word;
            while left != 0 {
                with(index * 64 + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn excluded(pattern: &str, path: &str, is_folder: bool) -> bool {
        let mut filter = Filter::new();
        filter.exclude(pattern.as_bytes()).unwrap();
        !filter.admits(&RelPath::new(path.as_bytes()).unwrap(), is_folder)
    }

    #[test]
    fn patterns_mean_what_rsync_users_expect() {
        for (pattern, path, expected) in [
            ("*.o", "a.o", true),
            ("*.o", "deep/er/a.o", true),
            ("*.o", "a.o/b", false),
            ("foo", "a/foo", true),
            ("foo", "a/foobar", false),
            ("/foo", "foo", true),
            ("/foo", "a/foo", false),
            ("a/b", "x/a/b", true),
            ("a/b", "xa/b", false),
            ("/a/*/c", "a/b/c", true),
            ("/a/*/c", "a/b/b/c", false),
            ("/a/**/c", "a/b/b/c", true),
            ("/a/**", "a/b/c", true),
            ("/a/**", "a", false),
            ("**/foo", "foo", true),
            ("**/foo", "a/b/foo", true),
            ("foo**bar", "a/foo/x/bar", true),
            ("a?c", "abc", true),
            ("/a?c", "a/c", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("[[:digit:]_]", "7", true),
            ("[[:digit:]_]", "a", false),
            ("/[!a]b", "/b".trim_start_matches('/'), false),
            (r"a\*", "a*", true),
            (r"a\*", "ab", false),
            (r"a\**", "a*b", true),
            (r"a\b", r"a\b", true),
            ("*", "anything", true),
            ("a*b*c", "aXbYbZc", true),
        ] {
            assert_eq!(
                excluded(pattern, path, false),
                expected,
                "{pattern} on {path}"
            );
        }
    }

    #[test]
    fn a_slash_at_the_end_is_for_folders() {
        assert!(excluded("build/", "x/build", true));
        assert!(!excluded("build/", "x/build", false));
        for (path, is_folder) in [("d", true), ("d/a", false), ("x/d/a/b", false)] {
            assert!(excluded("d/***", path, is_folder), "{path}");
        }
        assert!(!excluded("d/***", "d", false));
    }

    #[test]
    fn the_first_match_wins() {
        let mut filter = Filter::new();
        filter
            .lines(false, b"# notes\n\n; more\r\n+ *.rs\n*/\n- *\n")
            .unwrap();
        let admits =
            |path: &str, folder| filter.admits(&RelPath::new(path.as_bytes()).unwrap(), folder);
        assert!(admits("main.rs", false));
        assert!(!admits("main.o", false));
        assert!(!admits("src", true));
        assert!(filter.admits(&RelPath::top(), true));
        let inside = RelPath::new(b"src/main.rs").unwrap();
        assert!(filter.admits(&inside, false) && !filter.admits_all_the_way(&inside, false));
    }

    proptest! {
        #[test]
        fn looked_up_or_tried_the_first_match_wins(
            patterns in proptest::collection::vec("[-+] /?[ab*]{1,2}(/[ab]{1,2})?/?", 0..12),
            path in "[ab]{1,2}(/[ab]{1,2}){0,2}",
            is_folder: bool,
        ) {
            let mut filter = Filter::new();
            for pattern in &patterns {
                filter.exclude(pattern.as_bytes()).unwrap();
            }
            let path = RelPath::new(path.as_bytes()).unwrap();
            let matches = |rule: &&Rule| {
                (is_folder || !rule.folders_only) && rule.pattern.matches(path.as_bytes())
            };
            let first = filter.rules.iter().find(matches);
            prop_assert_eq!(filter.admits(&path, is_folder), first.is_none_or(|rule| rule.include));
        }
    }

    #[test]
    fn what_is_no_pattern_is_told_with_its_line() {
        let mut filter = Filter::new();
        assert_eq!(
            filter.lines(false, b"a\nb[c\n"),
            Err((2, FilterError::Unclosed))
        );
        assert_eq!(filter.exclude(b""), Err(FilterError::Empty));
        assert_eq!(filter.exclude(b"/"), Err(FilterError::Empty));
        assert_eq!(filter.exclude(&[b'x'; 4097]), Err(FilterError::Long));
        filter.lines(true, b"!").unwrap();
        assert!(filter.is_empty());
    }

    /// Compared by counted work, as time decides no test: a backtracking matcher would need 2^40 steps.
    #[test]
    fn a_pattern_made_to_be_slow_ends() {
        let pattern = "a*".repeat(2000) + "b";
        assert!(!excluded(&pattern, &"a".repeat(255), false));
        let deep = "**a".repeat(1000) + "b";
        let path = [b'a'; 200]
            .map(|byte| char::from(byte).to_string())
            .join("/");
        assert!(!excluded(&deep, &path, false));
    }

    /// The plain definition, which takes exponential time.
    fn plainly(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', b'*', rest @ ..] => (0..=text.len()).any(|at| plainly(rest, &text[at..])),
            [b'*', rest @ ..] => {
                let run = text.iter().take_while(|byte| **byte != b'/').count();
                (0..=run).any(|at| plainly(rest, &text[at..]))
            }
            [b'?', rest @ ..] => {
                matches!(text, [byte, after @ ..] if *byte != b'/' && plainly(rest, after))
            }
            [wanted, rest @ ..] => {
                matches!(text, [byte, after @ ..] if byte == wanted && plainly(rest, after))
            }
        }
    }

    proptest! {
        #[test]
        fn matches_as_the_plain_definition_does(pattern in "[ab*?/]{1,8}", path in "[ab]{1,3}(/[ab]{1,2}){0,3}") {
            // *** is ** and *, which is **.
            let body = pattern.trim_matches('/').replace("***", "**").replace("***", "**");
            prop_assume!(!body.is_empty() && !body.contains("//"));
            let anchored = Pattern::new(format!("/{body}").as_bytes()).unwrap();
            prop_assert_eq!(anchored.matches(path.as_bytes()), plainly(body.as_bytes(), path.as_bytes()));
            let Ok(open) = Pattern::new(body.as_bytes()) else { return Ok(()) };
            let deep = body.contains('/') || body.contains("**");
            let bytes = path.as_bytes();
            let starts = (0..bytes.len()).filter(|at| *at == 0 || bytes[at - 1] == b'/');
            let starts: Vec<usize> = starts.collect();
            let last = starts.len() - 1;
            let tried = if deep { &starts[..] } else { &starts[last..] };
            let mut plain = tried.iter().any(|at| plainly(body.as_bytes(), &bytes[*at..]));
            let mut rest = body.as_str();
            while let Some(stripped) = rest.strip_prefix("**/") {
                rest = stripped;
                plain = plain || Pattern::new(rest.as_bytes()).is_ok_and(|rest| rest.matches(bytes));
            }
            prop_assert_eq!(open.matches(bytes), plain);
        }

        #[test]
        fn any_bytes_are_a_pattern_or_an_error(pattern: Vec<u8>, path in proptest::collection::vec(1u8..=255, 1..40)) {
            let mut filter = Filter::new();
            if filter.exclude(&pattern).is_ok() && let Ok(path) = RelPath::new(&path) {
                filter.admits(&path, false);
            }
        }
    }
}
