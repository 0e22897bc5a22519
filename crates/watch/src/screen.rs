//! The screen as a machine: keys in, lines out. It knows no terminal; who owns one reads bytes and draws lines.

use crate::filter::Filter;
use crate::names::Names;
use crate::row::{View, key_name};
use crate::session::Session;
use crate::sums::By;
use crate::table::{Connection, Id};
use crate::text;

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A letter or sign.
    Char(char),
    /// Return.
    Enter,
    /// Escape, alone.
    Escape,
    /// Backspace or delete.
    Backspace,
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
    /// F6.
    F6,
}

/// Keys in what a terminal sent at once (ECMA-48 and xterm's sequences); what is not known is no key.
pub fn keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let known = SEQUENCES
            .iter()
            .find(|(sequence, _)| rest.starts_with(sequence));
        if let Some((sequence, key)) = known {
            keys.push(*key);
            rest = &rest[sequence.len()..];
            continue;
        }
        rest = match first {
            0x1b if after.starts_with(b"[") || after.starts_with(b"O") => {
                // Parameters, then a final byte of 0x40 to 0x7e.
                let end = after.iter().skip(1).position(|b| (0x40..=0x7e).contains(b));
                &after[end.map_or(after.len(), |n| n + 2)..]
            }
            0x1b => {
                keys.push(Key::Escape);
                after
            }
            b'\r' | b'\n' => {
                keys.push(Key::Enter);
                after
            }
            0x7f | 0x08 => {
                keys.push(Key::Backspace);
                after
            }
            0x20..=0x7e => {
                keys.push(Key::Char(char::from(*first)));
                after
            }
            _ => after,
        };
    }
    keys
}

const SEQUENCES: [(&[u8], Key); 13] = [
    (b"\x1b[A", Key::Up),
    (b"\x1b[B", Key::Down),
    (b"\x1bOA", Key::Up),
    (b"\x1bOB", Key::Down),
    (b"\x1b[5~", Key::PageUp),
    (b"\x1b[6~", Key::PageDown),
    (b"\x1b[H", Key::Home),
    (b"\x1b[F", Key::End),
    (b"\x1bOH", Key::Home),
    (b"\x1bOF", Key::End),
    (b"\x1b[1~", Key::Home),
    (b"\x1b[4~", Key::End),
    (b"\x1b[17~", Key::F6),
];

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// As it is.
    Plain,
    /// Stands out.
    Bold,
    /// Names of columns.
    Heading,
    /// Where the cursor is.
    Selected,
}

/// A line of the screen.
pub type Line = (Look, String);

/// What is on the screen and where the cursor is.
#[derive(Debug)]
pub struct Screen {
    /// What is shown.
    pub view: View,
    names: Names,
    plain: Names,
    with_names: bool,
    paused: bool,
    details: bool,
    help: bool,
    typed: Option<String>,
    wrong: Option<String>,
    cursor: usize,
    first: usize,
    page: usize,
    /// Ids in the order of the lines, none for a line that is no connection.
    shown: Vec<Option<Id>>,
    count: usize,
}

impl Screen {
    /// Begins with a view; names of hosts and ports are shown once they are asked for.
    pub fn new(view: View, names: Names) -> Self {
        Self {
            view,
            names,
            plain: Names::default(),
            with_names: false,
            paused: false,
            details: false,
            help: false,
            typed: None,
            wrong: None,
            cursor: 0,
            first: 0,
            page: 1,
            shown: Vec::new(),
            count: 0,
        }
    }

    /// Whether new dumps are to wait.
    pub const fn is_paused(&self) -> bool {
        self.paused
    }

    /// The connection whose details are shown.
    pub fn details_of(&self) -> Option<Id> {
        let selected = self.shown.get(self.cursor).copied().flatten();
        selected.filter(|_| self.details)
    }

    /// Connections whose readings are worth keeping: those on the screen.
    pub fn on_screen(&self) -> impl Iterator<Item = Id> {
        let selected = self.shown.get(self.cursor).copied().flatten();
        let visible = self
            .shown
            .iter()
            .skip(self.first)
            .take(self.page)
            .copied()
            .flatten();
        selected.into_iter().chain(visible)
    }

    /// What a key does; false for the one that ends it.
    pub fn handle_key(&mut self, key: Key) -> bool {
        if self.typed.is_some() {
            self.type_filter(key);
            return true;
        }
        self.help = self.help && !matches!(key, Key::Char('?') | Key::Escape | Key::Enter);
        match key {
            Key::Char('q') => return false,
            Key::Char('/') => self.typed = Some(String::new()),
            Key::Char('<') => self.view.sort = self.view.sort.step(false),
            Key::Char('>') | Key::F6 => self.view.sort = self.view.sort.step(true),
            Key::Char('r') => self.view.reverse = !self.view.reverse,
            Key::Char(' ' | 'p') => self.paused = !self.paused,
            Key::Char('t') => self.view.by = next_tree(self.view.by),
            Key::Char('n') => self.with_names = !self.with_names,
            Key::Char('?' | 'h') => self.help = true,
            Key::Enter => self.details = !self.details,
            Key::Escape => (self.details, self.wrong) = (false, None),
            Key::Up => self.cursor = self.cursor.saturating_sub(1),
            Key::Down => self.cursor += 1,
            Key::PageUp => self.cursor = self.cursor.saturating_sub(self.page),
            Key::PageDown => self.cursor += self.page,
            Key::Home => self.cursor = 0,
            Key::End => self.cursor = usize::MAX,
            Key::Char(_) | Key::Backspace => {}
        }
        self.cursor = self.cursor.min(self.count.saturating_sub(1));
        true
    }

    fn type_filter(&mut self, key: Key) {
        let mut typed = self.typed.take().unwrap_or_default();
        match key {
            Key::Enter => {
                match typed.parse::<Filter>() {
                    Ok(filter) => (self.view.filter, self.wrong) = (filter, None),
                    Err(error) => self.wrong = Some(error.to_string()),
                }
                return;
            }
            Key::Escape => return,
            Key::Backspace => drop(typed.pop()),
            Key::Char(c) => typed.push(c),
            _ => {}
        }
        self.typed = Some(typed);
    }

    /// The lines of a screen of that size; `findings` are what somebody knows about the connection in detail.
    pub fn lines(
        &mut self,
        session: &Session,
        findings: &[String],
        width: usize,
        height: usize,
    ) -> Vec<Line> {
        let mut lines = vec![
            (Look::Bold, text::cut(&self.title(session), width)),
            (Look::Plain, text::summary(session, width)),
        ];
        if self.help {
            lines.extend(HELP.lines().map(|l| (Look::Plain, text::cut(l, width))));
            lines.truncate(height);
            return lines;
        }
        let names = if self.with_names {
            &self.names
        } else {
            &self.plain
        };
        let pane = self.pane(session, names, findings, width, height);
        self.page = height.saturating_sub(lines.len() + 2 + pane.len()).max(1);
        let (heading, rows) = rows(
            session,
            &self.view,
            names,
            width,
            self.first + self.page + ROWS_AHEAD,
        );
        self.shown = rows.iter().map(|(id, _)| *id).collect();
        self.count = rows.len();
        self.cursor = self.cursor.min(self.count.saturating_sub(1));
        self.first = self
            .first
            .min(self.cursor)
            .max((self.cursor + 1).saturating_sub(self.page));
        lines.push((Look::Heading, heading));
        let visible = rows
            .into_iter()
            .enumerate()
            .skip(self.first)
            .take(self.page);
        lines.extend(visible.map(|(n, (_, line))| {
            let look = if n == self.cursor {
                Look::Selected
            } else {
                Look::Plain
            };
            (look, line)
        }));
        lines.resize(
            height.saturating_sub(pane.len() + 1),
            (Look::Plain, String::new()),
        );
        lines.extend(pane);
        lines.push((Look::Bold, text::cut(&self.prompt(), width)));
        lines
    }

    fn title(&self, session: &Session) -> String {
        let seconds = session.utc_ns() / 1_000_000_000 % 86_400;
        let time = format!(
            "{:02}:{:02}:{:02} UTC",
            seconds / 3_600,
            seconds / 60 % 60,
            seconds % 60
        );
        let order = if self.view.reverse { "reversed" } else { "" };
        let state = if self.paused { "PAUSED" } else { "" };
        let replay = if session.is_replay() { "recording" } else { "" };
        let by = self
            .view
            .by
            .map_or_else(String::new, |by| format!("by {}", by.name()));
        let sort = format!("sorted by {}", self.view.sort.name());
        let parts = ["goodput watch", replay, &time, &by, &sort, order, state];
        let parts: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
        parts.join("  ")
    }

    fn prompt(&self) -> String {
        match (&self.typed, &self.wrong) {
            (Some(typed), _) => format!("filter (as in ss, limit=rwnd, proc=, pid=): {typed}_"),
            (None, Some(wrong)) => wrong.clone(),
            (None, None) => "q quit  / filter  <> sort  r reverse  space pause  t tree  Enter details  n names  ? help".to_owned(),
        }
    }

    fn pane(
        &self,
        session: &Session,
        names: &Names,
        findings: &[String],
        width: usize,
        height: usize,
    ) -> Vec<Line> {
        let Some(known) = self.details_of().and_then(|id| session.table().get(id)) else {
            return Vec::new();
        };
        let rule = (
            Look::Heading,
            text::cut(&format!("details {}", "-".repeat(width)), width),
        );
        let lines = text::details(session, known, names)
            .into_iter()
            .chain(findings.iter().cloned());
        let lines = lines.flat_map(|line| wrapped(&line, width));
        let lines = lines.map(|line| (Look::Plain, line));
        std::iter::once(rule)
            .chain(lines)
            .take(height / 2)
            .collect()
    }
}

/// Lines of a view with the connection that each is, and what stands above.
fn rows(
    session: &Session,
    view: &View,
    names: &Names,
    width: usize,
    top: usize,
) -> (String, Vec<(Option<Id>, String)>) {
    let line = |known: &Connection, indent: usize| {
        let text = text::line(session, known, names, width.saturating_sub(indent));
        (Some(known.id), format!("{:indent$}{text}", ""))
    };
    let Some(by) = view.by else {
        let found = view.select(session, top);
        return (
            text::heading(view, width),
            found.into_iter().map(|c| line(c, 0)).collect(),
        );
    };
    let all = view.select(session, usize::MAX);
    let mut rows = Vec::new();
    for (key, group) in view.groups(session, by) {
        let name = key_name(session, names, &key);
        rows.push((None, text::group_line(session, &name, &group, width)));
        let inside = all.iter().filter(|c| session.table().key(c, by) == key);
        rows.extend(inside.take(BRANCHES_MAX).map(|c| line(c, 2)));
        if rows.len() >= top {
            break;
        }
    }
    (text::group_heading(by, width), rows)
}

fn next_tree(by: Option<By>) -> Option<By> {
    match by {
        None => Some(By::Process),
        Some(By::Process) => Some(By::Peer),
        Some(By::Peer) => Some(By::Port),
        Some(By::Port) => Some(By::Cgroup),
        Some(By::Cgroup) => None,
    }
}

/// A line as several, broken at blanks.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_whitespace() {
        let last = lines.len() - 1;
        let room = lines[last].chars().count() + 1 + word.chars().count() <= width;
        if lines[last].is_empty() || room {
            if !lines[last].is_empty() {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines.iter().map(|l| text::cut(l, width)).collect()
}

const HELP: &str = "
  q            quit                          /            type a filter, Enter to use it, Esc to leave
  < > F6       sort by another column        r            the other way round
  space, p     pause                         t            tree by process, peer, port, cgroup, none
  up, down     move; page up, page down      Enter        details of the connection and what to do
  n            names of hosts and ports      ?            this page; Esc leaves it

  LIMITED BY: app      the application here had nothing to send
              rwnd     the peer's receive window was full      reader   ... as its application reads slowly
              sndbuf   the send buffer here was full           pacing   the application asked for this rate
              cwnd     congestion window: path, queue, start   loss     segments lost while no queue was full
              peer     data arrives; the limit is elsewhere    own-reader, own-rwnd   this host takes no more
              idle     nothing moved                           ~ shares of the whole life, at first sight
  RTT/MIN     smoothed round trip and the smallest; apart: a queue    RETR  segments retransmitted
  AGE         > it was open before watching began
  filters     dst 10.0.0.0/8 and dport = :443    limit=rwnd or limit=sndbuf    proc=nginx    not state close-wait";

/// More rows than fit are laid out, so that the cursor has somewhere to go.
const ROWS_AHEAD: usize = 200;
/// Connections of a group that a tree shows.
const BRANCHES_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Sort;
    use crate::session::Options;

    fn screen() -> Screen {
        Screen::new(View::default(), Names::default())
    }

    #[test]
    fn bytes_of_a_terminal_become_keys_and_unknown_sequences_none() {
        assert_eq!(
            keys(b"q\x1b[A\x1b[17~\r\x7f"),
            [Key::Char('q'), Key::Up, Key::F6, Key::Enter, Key::Backspace]
        );
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
        assert_eq!(keys(b"\x1b[1;5Cx"), [Key::Char('x')]);
        assert_eq!(keys(b"\x1b[1;5"), []);
        assert_eq!(keys(&[0xc3, 0xa4, 1, b'a']), [Key::Char('a')]);
    }

    #[test]
    fn keys_sort_reverse_pause_and_quit() {
        let mut screen = screen();
        assert!(screen.handle_key(Key::Char('>')));
        assert_eq!(screen.view.sort, Sort::Process);
        screen.handle_key(Key::Char('<'));
        screen.handle_key(Key::Char('<'));
        assert_eq!(screen.view.sort, Sort::Age);
        screen.handle_key(Key::Char('r'));
        screen.handle_key(Key::Char(' '));
        assert!(screen.view.reverse && screen.is_paused());
        for by in [
            Some(By::Process),
            Some(By::Peer),
            Some(By::Port),
            Some(By::Cgroup),
            None,
        ] {
            screen.handle_key(Key::Char('t'));
            assert_eq!(screen.view.by, by);
        }
        assert!(!screen.handle_key(Key::Char('q')));
    }

    #[test]
    fn a_filter_is_typed_and_a_wrong_one_named_and_not_used() {
        let mut screen = screen();
        let mut types = |text: &str| {
            screen.handle_key(Key::Char('/'));
            text.chars()
                .for_each(|c| assert!(screen.handle_key(Key::Char(c))));
            screen.handle_key(Key::Enter);
            (screen.view.filter.is_all(), screen.prompt())
        };
        assert!(types("colour=red").1.contains("'colour'"));
        let (all, prompt) = types("limit=rwnd");
        assert!(!all && prompt.starts_with("q quit"));
        assert!(types("").0);
        // q is a letter there.
        screen.handle_key(Key::Char('/'));
        assert!(screen.handle_key(Key::Char('q')) && screen.prompt().ends_with("q_"));
    }

    #[test]
    fn every_frame_has_the_size_of_the_terminal() {
        let Ok(mut session) = Session::open(&Options::default()) else {
            testing::skipped("no socket diagnosis here");
            return;
        };
        session.tick().unwrap();
        let mut screen = screen();
        for (width, height) in [(80, 24), (40, 10), (200, 50), (10, 3)] {
            for key in [
                Key::Down,
                Key::Char('t'),
                Key::Enter,
                Key::End,
                Key::Char('?'),
                Key::Escape,
            ] {
                screen.handle_key(key);
                let lines = screen.lines(&session, &["a finding".to_owned()], width, height);
                assert!(
                    lines.len() <= height.max(5),
                    "{width} x {height}: {}",
                    lines.len()
                );
                assert!(lines.iter().all(|(_, l)| l.chars().count() <= width));
            }
        }
    }

    #[test]
    fn long_findings_are_broken_at_blanks() {
        assert_eq!(wrapped("one two three", 7), ["one two", "  three"]);
        assert_eq!(wrapped("", 7), [""]);
    }
}
