//! Tries gateways, labs and services out in labs, and judges what they did.

#![forbid(unsafe_code)]

pub mod copy;
pub mod gateway;
pub mod lab_check;
pub mod tune;
