//! Reads a filter: words to tests.
//!
//! Recursive descent. A parenthesis may open a condition or a number: the number is tried first, and of
//! two complaints the one that came further is told. What a hostile text can make grow is bounded:
//! nesting, joins within each other and operators in a number.

mod primitive;

use std::ops::Range;

use super::lex::{self, Fault, Kind, Token};
use super::names;
use super::tree::{Base, Expr, Node, Operator, Relation, Size, Test};
use primitive::{Head, Protocol};

type Parsed<T> = Result<T, Fault>;

/// The condition that a text states.
pub(super) fn parse(text: &str) -> Parsed<Node> {
    let mut parser = Parser {
        tokens: lex::tokens(text)?,
        next: 0,
        tags: 0,
        last: None,
        depth: 0,
        joins: 0,
        operators: 0,
    };
    if parser.peek() == Kind::End {
        return Ok(Node::Const(true));
    }
    let node = parser.condition()?;
    match parser.peek() {
        Kind::End => Ok(node),
        _ => Err(parser.fault("does not belong here: expected 'and', 'or' or the end")),
    }
}

struct Parser<'t> {
    tokens: Vec<Token<'t>>,
    next: usize,
    /// Tags that `vlan` has gone into so far.
    tags: u8,
    /// What the last test was about, for `port 80 or 443`.
    last: Option<Head>,
    depth: u32,
    joins: u32,
    operators: u32,
}

/// A number with what guards its loads: `tcp[0]` is one of a TCP segment only.
struct Number {
    expr: Expr,
    guards: Vec<Node>,
    /// By what it was made, where it is not in parentheses.
    made_by: Option<Operator>,
}

impl<'t> Parser<'t> {
    /// Terms joined by `and` and `or`, from the left.
    fn condition(&mut self) -> Parsed<Node> {
        let mut node = self.term()?;
        while let Some(join) = self.join() {
            let right = self.operand()?;
            node = self.joined(node, join, right)?;
        }
        Ok(node)
    }

    /// Longer rows stay flat, so that the tree is deep only where `and` and `or` alternate.
    fn joined(&mut self, left: Node, join: Join, right: Node) -> Parsed<Node> {
        match (left, join) {
            (Node::All(mut all), Join::And) => {
                all.push(right);
                Ok(Node::All(all))
            }
            (Node::Any(mut any), Join::Or) => {
                any.push(right);
                Ok(Node::Any(any))
            }
            (left, join) => {
                self.joins += 1;
                if self.joins > JOINS_MAX {
                    return Err(self.fault("comes after too many 'and' and 'or' in turns"));
                }
                Ok(match join {
                    Join::And => Node::All(vec![left, right]),
                    Join::Or => Node::Any(vec![left, right]),
                })
            }
        }
    }

    /// After `and` or `or` the words of the test before may be left out.
    fn operand(&mut self) -> Parsed<Node> {
        let opens = usize::from(self.peek() == Kind::Symbol("("));
        match self.last {
            Some(head) if self.is_value(self.next + opens) => self.values(head),
            _ => self.term(),
        }
    }

    fn join(&mut self) -> Option<Join> {
        let join = match self.peek() {
            Kind::Word("and") | Kind::Symbol("&&") => Join::And,
            Kind::Word("or") | Kind::Symbol("||") => Join::Or,
            _ => return None,
        };
        self.next += 1;
        Some(join)
    }

    fn term(&mut self) -> Parsed<Node> {
        let negated = self.negations();
        let node = match self.peek() {
            // `not port 80 and not 443`.
            Kind::Symbol("(") => self.in_parentheses()?,
            _ => self.primary(negated)?,
        };
        Ok(if negated { node.not() } else { node })
    }

    /// True after an odd number of `not`.
    fn negations(&mut self) -> bool {
        let mut negated = false;
        while matches!(self.peek(), Kind::Word("not") | Kind::Symbol("!")) {
            negated = !negated;
            self.next += 1;
        }
        negated
    }

    fn in_parentheses(&mut self) -> Parsed<Node> {
        let start = self.next;
        let tried = self.relation();
        let Err(number_fault) = tried else {
            return tried;
        };
        let number_end = self.next;
        self.next = start + 1;
        let inside = self.nested(Self::condition).and_then(|node| {
            self.symbol(")")?;
            Ok(node)
        });
        match inside {
            Err(_) if number_end > self.next => Err(number_fault),
            inside => inside,
        }
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == DEPTH_MAX {
            return Err(self.fault("is nested too deeply"));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn primary(&mut self, negated: bool) -> Parsed<Node> {
        let Kind::Word(word) = self.peek() else {
            return match self.peek() {
                Kind::Symbol("-") => self.relation(),
                Kind::End => Err(self.fault("a test is missing")),
                _ => Err(self.fault("stands where a test should begin")),
            };
        };
        let after = self.kind_at(self.next + 1);
        if self.is_number(word) || after == Kind::Symbol("[") {
            let last = self.last.take();
            let start = self.next;
            let relation = self.relation();
            return match (relation, last) {
                // `not port 80 and not 443`.
                (Err(_), Some(head)) if negated && after != Kind::Symbol("[") => {
                    self.next = start;
                    self.last = Some(head);
                    self.values(head)
                }
                (relation, _) => relation,
            };
        }
        if let Some(head) = self.head()? {
            self.last = Some(head);
            return self.values(head);
        }
        match self.last {
            Some(head) if negated && !primitive::is_keyword(word) => return self.values(head),
            _ => {}
        }
        self.last = None;
        self.abbreviation(word)
    }

    /// True where a value of the test before begins, and no other test.
    fn is_value(&self, at: usize) -> bool {
        let Kind::Word(word) = self.kind_at(at) else {
            return false;
        };
        let after = self.kind_at(at + 1);
        let is_compared = matches!(after, Kind::Symbol(s) if !["(", ")", "!", "&&", "||"].contains(&s))
            && !(after == Kind::Symbol("/") && self.last.is_some_and(Head::takes_prefix));
        !is_compared && !primitive::is_keyword(word) && !names::is_left_out(word)
    }

    fn is_number(&self, word: &str) -> bool {
        word == "len" || names::constant(word).is_some() || number(word).is_some()
    }

    /// `left relation right`, and that the packet has what both are about.
    fn relation(&mut self) -> Parsed<Node> {
        self.last = None;
        self.operators = 0;
        let left = self.number_expression(0)?;
        let relation = match self.peek() {
            Kind::Symbol("=" | "==") => Relation::Equal,
            Kind::Symbol("!=") => Relation::NotEqual,
            Kind::Symbol(">") => Relation::Greater,
            Kind::Symbol(">=") => Relation::GreaterOrEqual,
            Kind::Symbol("<") => Relation::Less,
            Kind::Symbol("<=") => Relation::LessOrEqual,
            _ => return Err(self.fault("stands where a comparison such as '= 1' should be")),
        };
        self.next += 1;
        let right = self.number_expression(0)?;
        let mut all = left.guards;
        all.extend(right.guards);
        all.push(Node::Test(Test {
            left: left.expr,
            relation,
            right: right.expr,
        }));
        Ok(Node::All(all))
    }

    /// Operators that bind at least as strongly as `strength` (precedence climbing).
    fn number_expression(&mut self, strength: u8) -> Parsed<Number> {
        let mut left = self.operand_number()?;
        while let Kind::Symbol(symbol) = self.peek() {
            let Some((operator, own)) = operator(symbol).filter(|&(_, own)| own >= strength) else {
                break;
            };
            let at = self.here();
            self.next += 1;
            self.operators += 1;
            if self.operators > OPERATORS_MAX {
                return Err((at, "is one of too many operators".to_owned()));
            }
            let right = self.number_expression(own + 1)?;
            let makers = [left.made_by, right.made_by];
            if makers
                .into_iter()
                .flatten()
                .any(|maker| is_odd(maker) || is_odd(operator))
            {
                let why = "needs parentheses: which of ^, % and others comes first is unclear";
                return Err((at, why.to_owned()));
            }
            left = self.combine(operator, left, right, at)?;
        }
        Ok(left)
    }

    fn combine(
        &self,
        operator: Operator,
        left: Number,
        right: Number,
        at: Range<usize>,
    ) -> Parsed<Number> {
        let mut guards = left.guards;
        guards.extend(right.guards);
        let expr = match (left.expr, right.expr) {
            (Expr::Number(left), Expr::Number(right)) => {
                operator.apply(left, right).map(Expr::Number)
            }
            (left, Expr::Number(right)) if operator.apply(1, right).is_none() => {
                drop(left);
                None
            }
            (left, right) => Some(Expr::Binary(operator, Box::new(left), Box::new(right))),
        };
        let why = "divides by zero, or shifts by more than 31 bits";
        Ok(Number {
            expr: expr.ok_or_else(|| (at, why.to_owned()))?,
            guards,
            made_by: Some(operator),
        })
    }

    fn operand_number(&mut self) -> Parsed<Number> {
        let plain = |expr| Number {
            expr,
            guards: Vec::new(),
            made_by: None,
        };
        match self.peek() {
            Kind::Symbol("(") => {
                self.next += 1;
                let inside = self.nested(|p| p.number_expression(0))?;
                self.symbol(")")?;
                Ok(Number {
                    made_by: None,
                    ..inside
                })
            }
            Kind::Symbol("-") => {
                self.next += 1;
                let inside = self.nested(Self::operand_number)?;
                let expr = match inside.expr {
                    Expr::Number(number) => Expr::Number(number.wrapping_neg()),
                    expr => Expr::Negative(Box::new(expr)),
                };
                Ok(Number { expr, ..inside })
            }
            Kind::Word("len") => {
                self.next += 1;
                Ok(plain(Expr::Length))
            }
            Kind::Word(word) => {
                let known = names::constant(word).or_else(|| number(word));
                if let Some(value) = known {
                    self.next += 1;
                    return Ok(plain(Expr::Number(value)));
                }
                match Protocol::of(word) {
                    Some(protocol) => self.load(protocol),
                    None => Err(self.fault("is no number")),
                }
            }
            Kind::End => Err(self.fault("a number is missing")),
            Kind::Symbol(_) => Err(self.fault("stands where a number should be")),
        }
    }

    /// `tcp[offset:size]`.
    fn load(&mut self, protocol: Protocol) -> Parsed<Number> {
        let Some((base, origin, mut guards)) = primitive::bytes_of(protocol, self.tags) else {
            return Err(self.fault("has no bytes that can be asked for"));
        };
        self.next += 1;
        self.symbol("[")?;
        let at = self.here();
        let index = self.nested(|p| p.number_expression(0))?;
        let size = if self.peek() == Kind::Symbol(":") {
            self.next += 1;
            let size = match self.peek() {
                Kind::Word("1") => Size::Byte,
                Kind::Word("2") => Size::Half,
                Kind::Word("4") => Size::Word,
                _ => return Err(self.fault("is no size: 1, 2 or 4 bytes can be read")),
            };
            self.next += 1;
            size
        } else {
            Size::Byte
        };
        self.symbol("]")?;
        let offset = match index.expr {
            Expr::Number(number) if number > OFFSET_MAX => {
                return Err((at, format!("is beyond any packet: up to {OFFSET_MAX}")));
            }
            Expr::Number(number) => Expr::Number(number + origin),
            _ if base == Base::Frame => {
                return Err((at, "must be a number in ether[…]".to_owned()));
            }
            expr if origin == 0 => expr,
            expr => Expr::Binary(
                Operator::Add,
                Box::new(expr),
                Box::new(Expr::Number(origin)),
            ),
        };
        guards.extend(index.guards);
        Ok(Number {
            expr: Expr::Load {
                base,
                offset: Box::new(offset),
                size,
            },
            guards,
            made_by: None,
        })
    }

    fn symbol(&mut self, wanted: &'static str) -> Parsed<()> {
        if self.peek() == Kind::Symbol(wanted) {
            self.next += 1;
            return Ok(());
        }
        Err(match self.peek() {
            Kind::End => self.fault(&format!("a '{wanted}' is missing")),
            _ => self.fault(&format!("stands where a '{wanted}' should be")),
        })
    }

    fn peek(&self) -> Kind<'t> {
        self.kind_at(self.next)
    }

    fn kind_at(&self, at: usize) -> Kind<'t> {
        self.tokens.get(at).map_or(Kind::End, |token| token.kind)
    }

    fn here(&self) -> Range<usize> {
        let token = self.tokens.get(self.next).or_else(|| self.tokens.last());
        token.map_or(0..0, |token| token.at.clone())
    }

    fn fault(&self, why: &str) -> Fault {
        (self.here(), why.to_owned())
    }
}

#[derive(Clone, Copy)]
enum Join {
    And,
    Or,
}

/// libpcap's grammar up to 1.10 gives these no precedence, so that `a % b * c` is not what it looks like.
const fn is_odd(operator: Operator) -> bool {
    matches!(operator, Operator::Xor | Operator::Modulo)
}

/// An operator with how strongly it binds.
fn operator(symbol: &str) -> Option<(Operator, u8)> {
    Some(match symbol {
        "|" => (Operator::Or, 0),
        "^" => (Operator::Xor, 1),
        "&" => (Operator::And, 2),
        "<<" => (Operator::ShiftLeft, 3),
        ">>" => (Operator::ShiftRight, 3),
        "+" => (Operator::Add, 4),
        "-" => (Operator::Subtract, 4),
        "*" => (Operator::Multiply, 5),
        "/" => (Operator::Divide, 5),
        "%" => (Operator::Modulo, 5),
        _ => return None,
    })
}

/// A number as C writes it: decimal, 0x and hexadecimal, 0 and octal.
fn number(word: &str) -> Option<u32> {
    let lower = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
    let (digits, radix) = match (lower, word.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (word, 10),
    };
    // `from_str_radix` would take a sign.
    let all_digits = digits.chars().all(|c| c.is_digit(radix));
    u32::from_str_radix(digits, radix)
        .ok()
        .filter(|_| all_digits)
}

/// Parentheses within each other; a stack of 2 MiB has room for them in a debug build.
const DEPTH_MAX: u32 = 48;
/// Changes between `and` and `or`: the tree's depth beside the parentheses.
const JOINS_MAX: u32 = 400;
/// Operators of one comparison.
const OPERATORS_MAX: u32 = 64;
/// Longest packet that IP knows; further offsets would wrap, or mean other things to the kernel.
const OFFSET_MAX: u32 = 65_535;
