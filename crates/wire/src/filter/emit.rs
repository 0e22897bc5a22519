//! Tests to instructions of classic BPF.
//!
//! Each test jumps to one of two labels further on, so the program has no loops and ends. A comparison
//! reaches 255 instructions; where its label is further, two jumps of any length stand behind it. Which
//! need them is found by trying until nothing changes.
//!
//! Little is optimised. What the accumulator holds already is not loaded again; and of a packet socket's
//! frame with a tag beside it, the EtherType is a tag's, so tests of others before the first `vlan`
//! fall away.
//!
//! Sources: Linux Documentation/networking/filter.rst (instruction set, SKF_AD_*), net/core/filter.c
//! (bpf_check_classic: what is refused).

use super::tree::{Base, Expr, Node, Operator, Relation, Size, Test};
use super::{INSTRUCTIONS_MAX, Instruction, Way};

type Emitted<T> = Result<T, &'static str>;

pub(super) fn for_frames(root: &Node, keep: u32) -> Emitted<Vec<Instruction>> {
    let mut emitter = Emitter::new(Layout::Whole);
    emitter.program(root)?;
    emitter.finish(keep)
}

pub(super) fn for_socket(root: &Node, keep: u32, way: Way) -> Emitted<Vec<Instruction>> {
    let mut emitter = Emitter::new(Layout::Whole);
    if way != Way::Both {
        emitter.plain(LOAD_WORD, ancillary(PACKET_TYPE));
        let here = emitter.label();
        let (yes, no) = match way {
            Way::Out => (here, REFUSE),
            _ => (REFUSE, here),
        };
        emitter.jump(JUMP_EQUAL, PACKET_OUTGOING, yes, no);
        emitter.place(here);
    }
    if !matches!(settled(root, Layout::Whole), Node::Const(_)) {
        let (tagged, plain) = (emitter.label(), emitter.label());
        emitter.plain(LOAD_WORD, ancillary(TAG_PRESENT));
        emitter.jump(JUMP_EQUAL, 0, plain, tagged);
        emitter.place(tagged);
        emitter.layout = Layout::TagBeside;
        emitter.program(root)?;
        emitter.place(plain);
        emitter.layout = Layout::Whole;
    }
    emitter.program(root)?;
    emitter.finish(keep)
}

/// Where a frame's outer tag is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// In its bytes, if it has one.
    Whole,
    /// Beside them, as the kernel keeps it.
    TagBeside,
}

/// A place in the program, known when it is reached.
type Label = usize;

const TAKE: Label = 0;
const REFUSE: Label = 1;

struct Emitter {
    layout: Layout,
    items: Vec<Item>,
    labels: Vec<Place>,
    /// What A holds where the next item stands, if that is known.
    holds: Option<Expr>,
}

#[derive(Clone, Debug, Default)]
struct Place {
    /// The item that the label stands before.
    item: Option<usize>,
    /// What A holds there: the same at the end of all jumps seen, or `Some(None)`.
    holds: Option<Option<Expr>>,
}

#[derive(Clone, Copy, Debug)]
enum Item {
    Plain(Instruction),
    Jump {
        code: u16,
        k: u32,
        yes: Label,
        no: Label,
    },
    Always(Label),
}

impl Emitter {
    fn new(layout: Layout) -> Self {
        Self {
            layout,
            items: Vec::new(),
            labels: vec![Place::default(); 2],
            holds: None,
        }
    }

    fn label(&mut self) -> Label {
        self.labels.push(Place::default());
        self.labels.len() - 1
    }

    fn place(&mut self, label: Label) {
        // Every test ends in a jump: nobody comes here but by one.
        if let Some(place) = self.labels.get_mut(label) {
            place.item = Some(self.items.len());
            self.holds = place.holds.take().flatten();
        }
    }

    fn plain(&mut self, code: u16, k: u32) {
        self.items.push(Item::Plain(Instruction {
            code,
            jump_true: 0,
            jump_false: 0,
            k,
        }));
    }

    fn jump(&mut self, code: u16, k: u32, yes: Label, no: Label) {
        for label in [yes, no] {
            if let Some(place) = self.labels.get_mut(label) {
                match &place.holds {
                    None => place.holds = Some(self.holds.clone()),
                    Some(known) if *known != self.holds => place.holds = Some(None),
                    Some(_) => {}
                }
            }
        }
        self.items.push(Item::Jump { code, k, yes, no });
    }

    fn program(&mut self, root: &Node) -> Emitted<()> {
        let node = settled(root, self.layout);
        self.node(&node, TAKE, REFUSE)
    }

    fn node(&mut self, node: &Node, yes: Label, no: Label) -> Emitted<()> {
        // An end to what a long text can make; each item is at least one instruction.
        if self.items.len() > INSTRUCTIONS_MAX {
            return Err(TOO_LONG);
        }
        match node {
            Node::Const(truth) => {
                self.items.push(Item::Always(if *truth { yes } else { no }));
                Ok(())
            }
            Node::Not(inside) => self.node(inside, no, yes),
            Node::All(all) => self.row(all, true, yes, no),
            Node::Any(any) => self.row(any, false, yes, no),
            Node::Test(test) => self.test(test, yes, no),
        }
    }

    /// Each but the last goes on to the next where it does not decide.
    fn row(&mut self, nodes: &[Node], is_all: bool, yes: Label, no: Label) -> Emitted<()> {
        let Some((last, before)) = nodes.split_last() else {
            return self.node(&Node::Const(is_all), yes, no);
        };
        for node in before {
            let next = self.label();
            let (yes, no) = if is_all { (next, no) } else { (yes, next) };
            self.node(node, yes, no)?;
            self.place(next);
        }
        self.node(last, yes, no)
    }

    fn test(&mut self, test: &Test, yes: Label, no: Label) -> Emitted<()> {
        let (code, yes, no) = match test.relation {
            Relation::Equal => (JUMP_EQUAL, yes, no),
            Relation::NotEqual => (JUMP_EQUAL, no, yes),
            Relation::Greater => (JUMP_GREATER, yes, no),
            Relation::LessOrEqual => (JUMP_GREATER, no, yes),
            Relation::GreaterOrEqual => (JUMP_GREATER_EQUAL, yes, no),
            Relation::Less => (JUMP_GREATER_EQUAL, no, yes),
        };
        if let Expr::Number(k) = test.right {
            if self.holds.as_ref() != Some(&test.left) {
                self.expr(&test.left, 0)?;
                self.holds = Some(test.left.clone());
            }
            self.jump(code, k, yes, no);
            return Ok(());
        }
        self.both(&test.left, &test.right, 0)?;
        self.holds = None;
        self.jump(code | OPERAND_X, 0, yes, no);
        Ok(())
    }

    /// The left one to A, the right one to X.
    fn both(&mut self, left: &Expr, right: &Expr, used: u32) -> Emitted<()> {
        if used == SCRATCH_WORDS {
            return Err("nests more numbers than a program can keep (16)");
        }
        self.expr(right, used)?;
        self.plain(STORE, used);
        self.expr(left, used + 1)?;
        self.plain(LOAD_X_SCRATCH, used);
        Ok(())
    }

    /// The number to A. Scratch words from `used` on are free; X is not kept.
    fn expr(&mut self, expr: &Expr, used: u32) -> Emitted<()> {
        match expr {
            Expr::Number(k) => self.plain(LOAD_NUMBER, *k),
            Expr::LinkType(0) if self.layout == Layout::TagBeside => {
                self.plain(LOAD_WORD, ancillary(TAG_TYPE));
            }
            Expr::LinkType(tags) => self.plain(LOAD_HALF, 12 + 4 * self.tags_inside(*tags)),
            Expr::Tag(0) if self.layout == Layout::TagBeside => {
                self.plain(LOAD_WORD, ancillary(TAG));
            }
            Expr::Tag(tags) => self.plain(LOAD_HALF, 14 + 4 * self.tags_inside(*tags)),
            Expr::Length => {
                self.plain(LOAD_LENGTH, 0);
                if self.layout == Layout::TagBeside {
                    self.plain(ALU_ADD, TAG_BYTES);
                }
            }
            Expr::Load { base, offset, size } => self.load(*base, offset, *size, used)?,
            Expr::Negative(inside) => {
                self.expr(inside, used)?;
                self.plain(ALU_NEGATE, 0);
            }
            Expr::Binary(operator, left, right) => {
                if let Expr::Number(k) = **right {
                    self.expr(left, used)?;
                    self.plain(operator.code(), k);
                } else {
                    self.both(left, right, used)?;
                    self.plain(operator.code() | OPERAND_X, 0);
                }
            }
        }
        Ok(())
    }

    fn load(&mut self, base: Base, offset: &Expr, size: Size, used: u32) -> Emitted<()> {
        let code = size.load_code();
        match (base, offset) {
            (Base::Frame, Expr::Number(at)) => self.frame_bytes(*at, size, used)?,
            (Base::Network(tags), Expr::Number(at)) => self.plain(code, self.network(tags) + at),
            (Base::Transport(tags), Expr::Number(at)) => {
                self.plain(LOAD_X_IP_HEADER, self.network(tags));
                self.plain(
                    code - MODE_ABSOLUTE + MODE_INDIRECT,
                    self.network(tags) + at,
                );
            }
            (Base::Frame, offset) => {
                self.expr(offset, used)?;
                self.plain(TO_X, 0);
                self.plain(code - MODE_ABSOLUTE + MODE_INDIRECT, 0);
            }
            (Base::Network(tags) | Base::Transport(tags), offset) => {
                self.expr(offset, used)?;
                if matches!(base, Base::Transport(_)) {
                    self.plain(LOAD_X_IP_HEADER, self.network(tags));
                    self.plain(ALU_ADD | OPERAND_X, 0);
                }
                self.plain(TO_X, 0);
                self.plain(code - MODE_ABSOLUTE + MODE_INDIRECT, self.network(tags));
            }
        }
        Ok(())
    }

    /// Bytes of the frame as the wire has it, whose outer tag (at 12 to 15) may be beside it.
    fn frame_bytes(&mut self, at: u32, size: Size, used: u32) -> Emitted<()> {
        let bytes = size.bytes();
        if self.layout == Layout::Whole || at + bytes <= TAG_AT {
            self.plain(size.load_code(), at);
            return Ok(());
        }
        if at >= TAG_AT + TAG_BYTES {
            self.plain(size.load_code(), at - TAG_BYTES);
            return Ok(());
        }
        if used == SCRATCH_WORDS {
            return Err("nests more numbers than a program can keep (16)");
        }
        self.plain(LOAD_NUMBER, 0);
        for byte in at..at + bytes {
            // What there is so far, moved up; then the next byte.
            self.plain(ALU_SHIFT_LEFT, 8);
            self.plain(STORE, used);
            match byte {
                TAG_AT..=TAG_LAST => {
                    let word = if byte < TAG_AT + 2 { TAG_TYPE } else { TAG };
                    self.plain(LOAD_WORD, ancillary(word));
                    if byte % 2 == 0 {
                        self.plain(ALU_SHIFT_RIGHT, 8);
                    }
                    self.plain(ALU_AND, 0xff);
                }
                _ if byte < TAG_AT => self.plain(LOAD_BYTE, byte),
                _ => self.plain(LOAD_BYTE, byte - TAG_BYTES),
            }
            self.plain(LOAD_X_SCRATCH, used);
            self.plain(ALU_OR | OPERAND_X, 0);
        }
        Ok(())
    }

    /// Offset of the network header after so many tags.
    fn network(&self, tags: u8) -> u32 {
        14 + 4 * self.tags_inside(tags)
    }

    /// How many of the tags are in the bytes.
    fn tags_inside(&self, tags: u8) -> u32 {
        let beside = u8::from(self.layout == Layout::TagBeside);
        u32::from(tags.saturating_sub(beside))
    }

    /// Adds what the program ends with, and makes labels distances.
    fn finish(mut self, keep: u32) -> Emitted<Vec<Instruction>> {
        self.place(TAKE);
        self.plain(RETURN, keep);
        self.place(REFUSE);
        self.plain(RETURN, 0);
        if self.items.len() > INSTRUCTIONS_MAX {
            return Err(TOO_LONG);
        }
        let mut far = vec![Far::default(); self.items.len()];
        loop {
            let starts = starts(&far);
            let mut changed = false;
            for (i, item) in self.items.iter().enumerate() {
                let Item::Jump { yes, no, .. } = *item else {
                    continue;
                };
                let is_far = |label| self.target(label, &starts) - starts[i] > SHORT_MAX;
                let now = Far {
                    yes: far[i].yes || is_far(yes),
                    no: far[i].no || is_far(no),
                };
                changed |= now != far[i];
                far[i] = now;
            }
            if !changed {
                return self.resolved(&starts, &far);
            }
        }
    }

    fn target(&self, label: Label, starts: &[usize]) -> usize {
        // Every label is placed by now, behind all jumps to it.
        let item = self
            .labels
            .get(label)
            .and_then(|place| place.item)
            .unwrap_or(0);
        starts.get(item).copied().unwrap_or(0)
    }

    fn resolved(&self, starts: &[usize], far: &[Far]) -> Emitted<Vec<Instruction>> {
        let mut program = Vec::with_capacity(starts.last().copied().unwrap_or(0));
        let distance = |from: usize, label| self.target(label, starts) - from - 1;
        let always = |from, label| -> Emitted<Instruction> {
            let k = u32::try_from(distance(from, label)).map_err(|_| TOO_LONG)?;
            Ok(Instruction {
                code: JUMP_ALWAYS,
                jump_true: 0,
                jump_false: 0,
                k,
            })
        };
        for (i, item) in self.items.iter().enumerate() {
            let at = starts[i];
            match *item {
                Item::Plain(instruction) => program.push(instruction),
                Item::Always(label) => program.push(always(at, label)?),
                Item::Jump { code, k, yes, no } => {
                    let Far {
                        yes: yes_far,
                        no: no_far,
                    } = far[i];
                    let behind = usize::from(yes_far);
                    program.push(Instruction {
                        code,
                        jump_true: short(if yes_far { 0 } else { distance(at, yes) })?,
                        jump_false: short(if no_far { behind } else { distance(at, no) })?,
                        k,
                    });
                    if yes_far {
                        program.push(always(at + 1, yes)?);
                    }
                    if no_far {
                        program.push(always(at + 1 + behind, no)?);
                    }
                }
            }
        }
        match program.len() {
            0..=INSTRUCTIONS_MAX => Ok(program),
            _ => Err(TOO_LONG),
        }
    }
}

/// Which sides of a comparison go by way of a jump of any length behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Far {
    yes: bool,
    no: bool,
}

/// Number of each item's first instruction, and of what follows the last.
fn starts(far: &[Far]) -> Vec<usize> {
    let mut at = 0;
    let mut starts = Vec::with_capacity(far.len() + 1);
    for far in far {
        starts.push(at);
        at += 1 + usize::from(far.yes) + usize::from(far.no);
    }
    starts.push(at);
    starts
}

fn short(distance: usize) -> Emitted<u8> {
    u8::try_from(distance).map_err(|_| TOO_LONG)
}

/// The condition without what is the same for every packet of this layout.
fn settled(node: &Node, layout: Layout) -> Node {
    match node {
        Node::Const(_) => node.clone(),
        Node::Not(inside) => match settled(inside, layout) {
            Node::Const(truth) => Node::Const(!truth),
            inside => inside.not(),
        },
        Node::All(all) => settled_row(all, layout, true),
        Node::Any(any) => settled_row(any, layout, false),
        Node::Test(test) => match (&test.left, &test.right) {
            (Expr::Number(left), Expr::Number(right)) => {
                Node::Const(test.relation.holds(*left, *right))
            }
            (Expr::LinkType(0), Expr::Number(kind))
                if layout == Layout::TagBeside
                    && test.relation == Relation::Equal
                    && !TAG_TYPES_BESIDE.contains(kind) =>
            {
                Node::Const(false)
            }
            _ => node.clone(),
        },
    }
}

fn settled_row(nodes: &[Node], layout: Layout, is_all: bool) -> Node {
    let mut kept = Vec::with_capacity(nodes.len());
    for node in nodes {
        match settled(node, layout) {
            Node::Const(truth) if truth == is_all => {}
            // Loads before it may lie outside the frame and so refuse it, as it would have been anyway,
            // or would not: a frame that short is none that a network carries.
            Node::Const(truth) => return Node::Const(truth),
            node => kept.push(node),
        }
    }
    match kept.len() {
        0 => Node::Const(is_all),
        1 => kept.swap_remove(0),
        _ if is_all => Node::All(kept),
        _ => Node::Any(kept),
    }
}

impl Size {
    const fn bytes(self) -> u32 {
        match self {
            Self::Byte => 1,
            Self::Half => 2,
            Self::Word => 4,
        }
    }

    const fn load_code(self) -> u16 {
        match self {
            Self::Byte => LOAD_BYTE,
            Self::Half => LOAD_HALF,
            Self::Word => LOAD_WORD,
        }
    }
}

impl Operator {
    const fn code(self) -> u16 {
        match self {
            Self::Add => ALU_ADD,
            Self::Subtract => 0x14,
            Self::Multiply => 0x24,
            Self::Divide => 0x34,
            Self::Or => ALU_OR,
            Self::And => ALU_AND,
            Self::ShiftLeft => ALU_SHIFT_LEFT,
            Self::ShiftRight => ALU_SHIFT_RIGHT,
            Self::Modulo => 0x94,
            Self::Xor => 0xa4,
        }
    }
}

const fn ancillary(word: u32) -> u32 {
    ANCILLARY + word
}

/// Furthest target of a comparison, from itself.
const SHORT_MAX: usize = 256;

const TOO_LONG: &str = "makes a program of more than 4096 instructions, the kernel's limit";

/// BPF_MEMWORDS.
const SCRATCH_WORDS: u32 = 16;
/// A tag's place in the frame and its length (IEEE 802.1Q).
const TAG_AT: u32 = 12;
const TAG_BYTES: u32 = 4;
const TAG_LAST: u32 = TAG_AT + TAG_BYTES - 1;
/// What the kernel keeps beside the bytes: eth_type_vlan().
const TAG_TYPES_BESIDE: [u32; 2] = [0x8100, 0x88a8];

// include/uapi/linux/filter.h: SKF_AD_OFF and the words there.
const ANCILLARY: u32 = 0xffff_f000;
const PACKET_TYPE: u32 = 4;
const TAG: u32 = 44;
const TAG_PRESENT: u32 = 48;
const TAG_TYPE: u32 = 60;
/// include/uapi/linux/if_packet.h: PACKET_OUTGOING.
const PACKET_OUTGOING: u32 = 4;

// include/uapi/linux/bpf_common.h: classes, sizes, modes and operations, put together.
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const MODE_ABSOLUTE: u16 = 0x20;
const MODE_INDIRECT: u16 = 0x40;
const LOAD_NUMBER: u16 = 0x00;
const LOAD_LENGTH: u16 = 0x80;
const LOAD_X_SCRATCH: u16 = 0x61;
const LOAD_X_IP_HEADER: u16 = 0xb1;
const STORE: u16 = 0x02;
const ALU_ADD: u16 = 0x04;
const ALU_OR: u16 = 0x44;
const ALU_AND: u16 = 0x54;
const ALU_SHIFT_LEFT: u16 = 0x64;
const ALU_SHIFT_RIGHT: u16 = 0x74;
const ALU_NEGATE: u16 = 0x84;
const OPERAND_X: u16 = 0x08;
const JUMP_ALWAYS: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_GREATER_EQUAL: u16 = 0x35;
const RETURN: u16 = 0x06;
const TO_X: u16 = 0x07;
