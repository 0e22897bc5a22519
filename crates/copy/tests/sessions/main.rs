//! Sessions as others run them: whole ones, ones that are disturbed, and ones whose other side means harm.

mod common;
mod faults;
mod hostile;
mod whole;
