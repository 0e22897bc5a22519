//! Counts of what is untidy, which may only fall: lines of the command, circles between a crate's
//! files, long functions.
//!
//! The sources are read as text. Strings, comments and tests are taken out, and of what is left only
//! paths, `use` and `fn` are understood: as much as the counts need. A path leads to the file of the
//! module that holds the item, through re-exports.
//!
//! Left out: macros, and what a file calls of its own child modules without a `use`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Lines of `crates/goodput/src`, which holds arguments and printing only: rounded up to hundreds.
const FACE_LINES: usize = 11_900;

/// Lines of a function that need no reason.
const FUNCTION_LINES: usize = 70;

/// Each crate that is untidy: files of its largest circle (1 is none), and functions of more than
/// [`FUNCTION_LINES`] lines. A crate that is not in the list has neither.
#[rustfmt::skip]
const UNTIDY: &[(&str, usize, usize)] = &[
    ("analyse", 1, 4),
    ("capture", 2, 1),
    ("cluster", 5, 9),
    ("copy", 12, 19),
    ("explain", 3, 4),
    ("fabric", 4, 10),
    ("gateway", 3, 6),
    ("goodput", 3, 1),
    ("lab", 3, 8),
    ("link", 2, 0),
    ("measure", 1, 2),
    ("report", 1, 14),
    ("sim", 2, 0),
    ("sys", 1, 2),
    ("trial", 1, 2),
    ("xtask", 3, 8),
];

#[test]
fn the_command_gets_no_longer() {
    let lines: usize = CRATES["goodput"]
        .files
        .iter()
        .map(|f| f.text.lines().count())
        .sum();
    let rounded = lines.div_ceil(100) * 100;
    let problem = compare("lines of crates/goodput/src", rounded, FACE_LINES);
    assert_eq!(problem, None, "{lines} lines");
}

#[test]
fn circles_between_files_get_no_larger() {
    let mut problems = String::new();
    for (name, one) in &*CRATES {
        let circle = one.largest_circle();
        let (allowed, _) = allowed(name);
        let what = format!("files in the largest circle of crate {name}");
        if let Some(problem) = compare(&what, circle.len().max(1), allowed) {
            let _ = writeln!(problems, "{problem}");
            for (from, to) in &circle {
                let _ = writeln!(problems, "  {from} uses {}", to.join(", "));
            }
        }
    }
    assert!(problems.is_empty(), "\n{problems}");
}

#[test]
fn long_functions_get_no_more() {
    let mut problems = String::new();
    for (name, one) in &*CRATES {
        let long: Vec<_> = one
            .files
            .iter()
            .flat_map(|file| {
                let functions = functions(&file.code).into_iter();
                functions.map(|(function, line, lines)| (&file.name, function, line, lines))
            })
            .filter(|(.., lines)| *lines > FUNCTION_LINES)
            .collect();
        let (_, allowed) = allowed(name);
        let what = format!("functions over {FUNCTION_LINES} lines in crate {name}");
        if let Some(problem) = compare(&what, long.len(), allowed) {
            let _ = writeln!(problems, "{problem}");
            for (file, function, line, lines) in long {
                let _ = writeln!(problems, "  {file}:{line}: {function} has {lines}");
            }
        }
    }
    assert!(problems.is_empty(), "\n{problems}");
}

/// What the list says of a crate.
fn allowed(name: &str) -> (usize, usize) {
    let found = UNTIDY.iter().find(|(listed, ..)| *listed == name);
    found.map_or((1, 0), |(_, circle, long)| (*circle, *long))
}

/// What is wrong with a count, if something is.
fn compare(what: &str, found: usize, allowed: usize) -> Option<String> {
    match found.cmp(&allowed) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Less => Some(format!(
            "{what}: {found}, better than {allowed} in xtask/tests/tidy.rs; lower it to {found}"
        )),
        std::cmp::Ordering::Greater => Some(format!(
            "{what}: {found}, and at most {allowed} are allowed"
        )),
    }
}

/// A crate's sources without its tests.
struct Crate {
    files: Vec<File>,
    /// By the path of the module that the file holds.
    modules: BTreeMap<Vec<String>, usize>,
}

struct File {
    /// Below the crate's folder of sources.
    name: String,
    module: Vec<String>,
    text: String,
    /// Without strings, comments and tests.
    code: Vec<Token>,
    uses: Vec<Use>,
    /// Names of what it defines.
    items: BTreeSet<String>,
}

/// A name that a file brings into its module.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Use {
    path: Vec<String>,
    /// `*` for all that the path holds.
    name: String,
    /// Others may come by it: `pub use`, in any form.
    is_public: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    text: String,
    line: usize,
}

/// The workspace's crates, by the names of their folders.
static CRATES: LazyLock<BTreeMap<String, Crate>> = LazyLock::new(|| {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders = vec![("xtask".to_owned(), workspace.join("xtask"))];
    for entry in fs::read_dir(workspace.join("crates")).unwrap() {
        let entry = entry.unwrap();
        folders.push((entry.file_name().into_string().unwrap(), entry.path()));
    }
    folders
        .into_iter()
        .map(|(name, folder)| (name, Crate::read(&folder.join("src"))))
        .collect()
});

impl Crate {
    fn read(folder: &Path) -> Self {
        let mut files: Vec<File> = rust_files(folder)
            .into_iter()
            .map(|path| {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap();
                File::read(name, fs::read_to_string(&path).unwrap())
            })
            .collect();
        let tests: BTreeSet<Vec<String>> = files
            .iter()
            .flat_map(|file| {
                let of_tests = tests_elsewhere(&file.text).into_iter();
                of_tests.map(|name| [file.module.as_slice(), &[name]].concat())
            })
            .collect();
        files.retain(|file| (0..=file.module.len()).all(|n| !tests.contains(&file.module[..n])));
        let modules = files.iter().enumerate();
        let modules = modules.map(|(n, f)| (f.module.clone(), n)).collect();
        Self { files, modules }
    }

    /// The files that each file uses, but for its parents: those hold their children, and what both
    /// share is one module.
    fn arrows(&self) -> Vec<BTreeSet<usize>> {
        self.files
            .iter()
            .map(|file| {
                let imports = file.uses.iter().filter(|u| !u.is_public);
                let imports = imports.map(|u| u.path.clone());
                let paths = imports.chain(paths(&file.code));
                let found = paths.filter_map(|path| self.home(&file.module, &path, 0));
                found
                    .filter(|to| !file.module.starts_with(&self.files[*to].module))
                    .collect()
            })
            .collect()
    }

    /// The file that holds what a path in `module` leads to; none outside this crate.
    fn home(&self, module: &[String], path: &[String], depth: usize) -> Option<usize> {
        let (first, mut rest) = path.split_first()?;
        let mut here = match first.as_str() {
            "crate" => Vec::new(),
            "self" => module.to_vec(),
            "super" => module.split_last()?.1.to_vec(),
            child => [module, &[child.to_owned()]].concat(),
        };
        if !self.modules.contains_key(&here) || depth > 8 {
            return None;
        }
        while let Some((name, after)) = rest.split_first() {
            let child = match name.as_str() {
                "super" => here.split_last()?.1.to_vec(),
                _ => [here.as_slice(), std::slice::from_ref(name)].concat(),
            };
            if !self.modules.contains_key(&child) {
                break;
            }
            (here, rest) = (child, after);
        }
        let file = &self.files[self.modules[&here]];
        let Some(name) = rest.first().filter(|name| *name != "*") else {
            return Some(self.modules[&here]);
        };
        if !file.items.contains(name) {
            // A name of another crate has no home in this one.
            if let Some(found) = file.uses.iter().find(|u| u.name == *name) {
                return self.home(&here, &found.path, depth + 1);
            }
            for all in file.uses.iter().filter(|u| u.name == "*") {
                let home = self.home(&here, &all.path, depth + 1);
                if let Some(home) = home.filter(|home| self.files[*home].items.contains(name)) {
                    return Some(home);
                }
            }
        }
        Some(self.modules[&here])
    }

    /// Files of the largest circle, each with those of it that it uses.
    fn largest_circle(&self) -> Vec<(String, Vec<String>)> {
        let arrows = self.arrows();
        let reached: Vec<BTreeSet<usize>> = (0..arrows.len())
            .map(|from| {
                let (mut seen, mut waiting) = (BTreeSet::new(), vec![from]);
                while let Some(at) = waiting.pop() {
                    waiting.extend(arrows[at].iter().filter(|to| seen.insert(**to)));
                }
                seen
            })
            .collect();
        let circle = |of: usize| -> BTreeSet<usize> {
            let back = |to: &&usize| reached[**to].contains(&of);
            reached[of].iter().filter(back).copied().collect()
        };
        let circles = (0..arrows.len()).map(circle);
        let largest = circles.rev().max_by_key(BTreeSet::len).unwrap_or_default();
        let name = |n: &usize| self.files[*n].name.clone();
        largest
            .iter()
            .map(|of| {
                let inside = arrows[*of].intersection(&largest);
                (name(of), inside.map(name).collect())
            })
            .collect()
    }
}

impl File {
    fn read(name: &str, text: String) -> Self {
        let stem = name.strip_suffix(".rs").unwrap();
        let mut module: Vec<String> = stem.split('/').map(str::to_owned).collect();
        if module == ["lib"] || module == ["main"] || module.last().unwrap() == "mod" {
            module.pop();
        }
        let code = without_tests(tokens(&text));
        Self {
            name: name.to_owned(),
            module,
            uses: uses(&code),
            items: items(&code),
            text,
            code,
        }
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Words and signs of a source, `::` as one; a string or character is `""`.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut line = 1;
    while let Some(c) = rest.chars().next() {
        let (length, token) = if c.is_whitespace() {
            (c.len_utf8(), None)
        } else if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), None)
        } else if rest.starts_with("/*") {
            (block_comment(rest), None)
        } else if let Some(length) = literal(rest) {
            (length, Some("\"\""))
        } else if c.is_alphanumeric() || c == '_' || c == '\'' {
            let word = |c: char| c.is_alphanumeric() || c == '_';
            let length = rest.char_indices().skip(1).find(|(_, c)| !word(*c));
            let length = length.map_or(rest.len(), |(at, _)| at);
            (length, Some(&rest[..length]))
        } else if rest.starts_with("::") {
            (2, Some("::"))
        } else {
            (c.len_utf8(), Some(&rest[..c.len_utf8()]))
        };
        if let Some(text) = token {
            let text = text.to_owned();
            tokens.push(Token { text, line });
        }
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    tokens
}

/// Length of the comment that `text` begins with; they nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (step, change) = match rest {
            _ if rest.starts_with("/*") => (2, 1),
            _ if rest.starts_with("*/") => (2, -1),
            _ => (rest.chars().next().map_or(1, char::len_utf8), 0),
        };
        (at, depth) = (at + step, depth + change);
        if depth == 0 {
            break;
        }
    }
    at
}

/// Length of the string or character that `text` begins with, if it does.
fn literal(text: &str) -> Option<usize> {
    let bare = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - bare.len();
    if prefix > 1 {
        return None;
    }
    if let Some(raw) = bare.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let body = raw[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let length = body.find(&end).map_or(body.len(), |at| at + end.len());
        return Some(text.len() - body.len() + length);
    }
    let quote = bare.chars().next().filter(|c| ['"', '\''].contains(c))?;
    let mut chars = bare.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote && at > 1 || c == '"' && quote == '"' {
            return Some(prefix + at + 1);
        } else if quote == '\'' && at > 1 && !bare.starts_with("'\\") {
            return None; // a lifetime
        }
    }
    None
}

/// Where the item that begins at `at` ends: behind its braces or its semicolon.
fn end_of_item(code: &[Token], at: usize) -> usize {
    let mut depth = 0_i32;
    for (n, token) in code.iter().enumerate().skip(at) {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        let is_end = match token.text.as_str() {
            ";" => depth == 0,
            "}" => depth <= 0,
            _ => false,
        };
        if is_end {
            return n + 1;
        }
    }
    code.len()
}

/// True where an attribute begins that keeps an item for tests.
fn is_for_tests(code: &[Token]) -> bool {
    let words = ["#", "[", "cfg", "(", "test", ")", "]"];
    let test = ["#", "[", "test", "]"];
    let begins = |words: &[&str]| {
        code.len() >= words.len()
            && code
                .iter()
                .zip(words)
                .all(|(token, word)| token.text == *word)
    };
    begins(&words) || begins(&test)
}

fn without_tests(code: Vec<Token>) -> Vec<Token> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < code.len() {
        if is_for_tests(&code[at..]) {
            at = end_of_attributes(&code, at);
            at = end_of_item(&code, at);
        } else {
            kept.push(code[at].clone());
            at += 1;
        }
    }
    kept
}

/// Where the attributes that begin at `at` end.
fn end_of_attributes(code: &[Token], mut at: usize) -> usize {
    while code.get(at).is_some_and(|t| t.text == "#") {
        let mut depth = 0;
        at += 1;
        while let Some(token) = code.get(at) {
            depth += i32::from(token.text == "[") - i32::from(token.text == "]");
            at += 1;
            if depth == 0 {
                break;
            }
        }
    }
    at
}

/// Names of modules in files of their own that are for tests.
fn tests_elsewhere(text: &str) -> Vec<String> {
    let code = tokens(text);
    let mut names = Vec::new();
    for at in 0..code.len() {
        if is_for_tests(&code[at..]) {
            let item = &code[end_of_attributes(&code, at)..];
            let item: Vec<&str> = item.iter().take(3).map(|t| t.text.as_str()).collect();
            if let ["mod", name, ";"] = item[..] {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// Every name that a `use` brings in.
fn uses(code: &[Token]) -> Vec<Use> {
    let mut found = Vec::new();
    for at in 0..code.len() {
        // `use<'a>` says what a returned type captures.
        if code[at].text == "use" && code.get(at + 1).is_some_and(|t| t.text != "<") {
            let before = at.checked_sub(1).map(|n| code[n].text.as_str());
            let is_public = matches!(before, Some("pub" | ")"));
            tree(&code[at + 1..], &mut 0, &[], is_public, &mut found);
        }
    }
    found
}

/// Reads one tree of a `use`, such as `a::{b, c as d}`.
fn tree(code: &[Token], at: &mut usize, start: &[String], is_public: bool, found: &mut Vec<Use>) {
    let mut path = start.to_vec();
    while let Some(token) = code.get(*at) {
        *at += 1;
        match token.text.as_str() {
            "::" => {}
            "{" => {
                while code
                    .get(*at)
                    .is_some_and(|t| !["}", ";"].contains(&t.text.as_str()))
                {
                    tree(code, at, &path, is_public, found);
                    *at += usize::from(code.get(*at).is_some_and(|t| t.text == ","));
                }
                *at += 1;
                return;
            }
            "," | ";" | "}" | "as" => {
                *at -= 1;
                break;
            }
            "self" if !path.is_empty() => {}
            word => path.push(word.to_owned()),
        }
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if name == "*" {
        path.pop();
    }
    if code.get(*at).is_some_and(|t| t.text == "as") {
        name = code[*at + 1].text.clone();
        *at += 2;
    }
    found.push(Use {
        path,
        name,
        is_public,
    });
}

/// Paths outside `use` that begin with `crate` or `super`.
fn paths(code: &[Token]) -> Vec<Vec<String>> {
    let is_colons = |at: usize| code.get(at).is_some_and(|t| t.text == "::");
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        if code[at].text == "use" {
            at = end_of_item(code, at);
            continue;
        }
        let mut path = vec![code[at].text.clone()];
        at += 1;
        while is_colons(at) && at + 1 < code.len() {
            path.push(code[at + 1].text.clone());
            at += 2;
        }
        if path.len() > 1 && ["crate", "super"].contains(&path[0].as_str()) {
            found.push(path);
        }
    }
    found
}

/// Names of what a file defines.
fn items(code: &[Token]) -> BTreeSet<String> {
    let kinds = [
        "fn",
        "struct",
        "enum",
        "trait",
        "type",
        "const",
        "static",
        "union",
        "macro_rules",
    ];
    code.windows(3)
        .filter(|w| kinds.contains(&w[0].text.as_str()))
        .map(|w| if w[1].text == "!" { &w[2] } else { &w[1] })
        .map(|name| name.text.clone())
        .collect()
}

/// Every function: its name, its line, and how many it has.
fn functions(code: &[Token]) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for at in 0..code.len() {
        if code[at].text != "fn" || code.get(at + 1).is_none_or(|t| t.text == "(") {
            continue;
        }
        let end = end_of_item(code, at);
        let lines = code[end - 1].line + 1 - code[at].line;
        found.push((code[at + 1].text.clone(), code[at].line, lines));
    }
    found
}

#[cfg(test)]
mod reader {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Crate {
        let files = files.iter();
        let files: Vec<_> = files
            .map(|(n, text)| File::read(n, (*text).to_owned()))
            .collect();
        let modules = files.iter().enumerate();
        let modules = modules.map(|(n, f)| (f.module.clone(), n)).collect();
        Crate { files, modules }
    }

    #[test]
    fn strings_comments_and_tests_are_no_code() {
        let text = "fn a<'a>() { '\\''; b'x'; \"fn b() {\\\"\"; r#\"\"{\"#; }\n// }\n/* /* */ { */\n\
                    #[cfg(test)]\n#[path = \"x\"]\nmod tests { fn c() {} }\nfn d() {\n}\n";
        let code = without_tests(tokens(text));
        let lines = |name: &str, line, lines| (name.to_owned(), line, lines);
        assert_eq!(functions(&code), [lines("a", 1, 1), lines("d", 7, 2)]);
        assert_eq!(tests_elsewhere("#[cfg(test)]\nmod x;\nmod y;"), ["x"]);
    }

    #[test]
    fn a_circle_is_found_through_re_exports_and_not_with_a_parent() {
        let root = ("lib.rs", "mod a; mod b; pub use a::A; pub const C: u8 = 0;");
        let a = ("a.rs", "mod c; use crate::b::{self, B as Other}; struct A;");
        let circle = |b| of(&[root, a, ("a/c.rs", "use super::A; use crate::C;"), b]);
        let circle = |b| circle(("b.rs", b)).largest_circle().len();
        assert_eq!(circle("use crate::A;"), 2);
        assert_eq!(circle("fn b() { crate::A::new() }"), 2);
        assert_eq!(circle("use crate::C; use std::a::A;"), 0);
        assert_eq!(circle("#[cfg(test)] mod tests { use crate::A; }"), 0);
    }
}
