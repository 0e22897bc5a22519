//! The experiment files inside the binary, so that `reproduce` works wherever the binary is.
//!
//! A test holds this list against the folder `experiments/`.

macro_rules! files {
    ($($id:literal)*) => {
        &[$((concat!("experiments/", $id, ".toml"),
            include_str!(concat!("../../../experiments/", $id, ".toml")))),*]
    };
}

/// Name and text of every experiment file, in the board's order.
#[rustfmt::skip]
pub(crate) const FILES: &[(&str, &str)] = files![
    "C1" "C2" "C3" "C4" "C5" "C6" "C7" "C8"
    "T1" "T2" "T3" "T4" "T5" "T6" "T7" "T8" "T9" "T10" "T11" "T12" "T13" "T14"
    "N1" "N2" "N3" "N4" "N5" "N6" "N7" "N8" "N9" "N10"
    "O1" "O2" "O3" "O4" "O5" "O6" "O7"
    "S1" "S2" "S3" "S4" "S5" "S6" "S7" "S8"
];
