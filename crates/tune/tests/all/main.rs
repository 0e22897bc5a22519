//! The service as its users see it: on trees that stand for machines, and in namespaces of the test's own.

mod namespace;
mod tree;
