//! What a filter says: tests of fields, joined.

/// A condition on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// The same for every packet.
    Const(bool),
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Test(Test),
}

/// A comparison of unsigned 32-bit numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) left: Expr,
    pub(super) relation: Relation,
    pub(super) right: Expr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expr {
    Number(u32),
    /// EtherType after so many tags.
    LinkType(u8),
    /// Control information of the tag after so many others.
    Tag(u8),
    /// Bytes of the packet on the wire.
    Length,
    Load {
        base: Base,
        offset: Box<Self>,
        size: Size,
    },
    Binary(Operator, Box<Self>, Box<Self>),
    Negative(Box<Self>),
}

/// Where offsets count from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// The frame's first byte.
    Frame,
    /// The network header's, after so many tags.
    Network(u8),
    /// The end of the IPv4 header, after so many tags.
    Transport(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Byte,
    Half,
    Word,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

impl Node {
    pub(super) fn not(self) -> Self {
        Self::Not(Box::new(self))
    }
}

impl From<Test> for Node {
    fn from(test: Test) -> Self {
        Self::Test(test)
    }
}

impl Expr {
    /// A field at a place known beforehand.
    pub(super) fn field(base: Base, offset: u32, size: Size) -> Self {
        Self::Load {
            base,
            offset: Box::new(Self::Number(offset)),
            size,
        }
    }

    /// These bits of it.
    pub(super) fn masked(self, mask: u32) -> Self {
        match mask {
            u32::MAX => self,
            _ => Self::Binary(Operator::And, Box::new(self), Box::new(Self::Number(mask))),
        }
    }

    pub(super) fn is(self, value: u32) -> Node {
        self.compared(Relation::Equal, value)
    }

    pub(super) fn compared(self, relation: Relation, value: u32) -> Node {
        Node::Test(Test {
            left: self,
            relation,
            right: Self::Number(value),
        })
    }
}

impl Relation {
    pub(super) const fn holds(self, left: u32, right: u32) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
        }
    }
}

impl Operator {
    /// What it makes of two numbers; `None` of what no program may say: division by zero, a shift of all
    /// bits.
    pub(super) fn apply(self, left: u32, right: u32) -> Option<u32> {
        match self {
            Self::Add => Some(left.wrapping_add(right)),
            Self::Subtract => Some(left.wrapping_sub(right)),
            Self::Multiply => Some(left.wrapping_mul(right)),
            Self::Divide => left.checked_div(right),
            Self::Modulo => left.checked_rem(right),
            Self::And => Some(left & right),
            Self::Or => Some(left | right),
            Self::Xor => Some(left ^ right),
            Self::ShiftLeft => left.checked_shl(right),
            Self::ShiftRight => left.checked_shr(right),
        }
    }
}
