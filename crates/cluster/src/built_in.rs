//! Fabric files by name: a file that is there, else one that comes with the program.

use std::path::Path;

use fault::Failure;

use crate::{FabricFile, Tier};

/// The file of that name, or the built-in fabric of that name; run in another tier than it says, if `tier` does.
///
/// # Errors
/// There is neither, or the file is refused.
///
/// ```
/// let file = cluster::built_in::find("talon-ib", None).unwrap();
/// assert!(!file.studies.is_empty());
/// ```
pub fn find(name: &str, tier: Option<Tier>) -> Result<FabricFile, Failure> {
    if Path::new(name).try_exists().unwrap_or(true) {
        return FabricFile::read_as(Path::new(name), tier).map_err(Failure::usage);
    }
    let stem = name.strip_prefix("fabrics/").unwrap_or(name);
    let stem = stem.strip_suffix(".toml").unwrap_or(stem);
    let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == stem) else {
        let names: Vec<&str> = BUILT_IN.iter().map(|(n, _)| *n).collect();
        return Err(Failure::usage(format!(
            "there is no fabric file '{name}' and no built-in fabric of that name; built in are: {}",
            names.join(", ")
        )));
    };
    let file = format!("fabrics/{stem}.toml");
    FabricFile::parse_as(Path::new(&file), text, tier).map_err(Failure::usage)
}

macro_rules! built_in {
    ($($name:literal),+ $(,)?) => {
        /// The fabrics that come with the program.
        const BUILT_IN: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../fabrics/", $name, ".toml"))),)+
        ];
    };
}

built_in!(
    "talon-ib",
    "talon-10ge",
    "talon-programs",
    "talon-jobs",
    "fortiswitch",
    "leininger-seager",
    "ten-thousand",
    "ornl-sdr",
    "ornl-ddr",
    "ornl-ddr-switch",
    "ornl-woodcrest",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_fabric_is_sound() {
        for (name, _) in BUILT_IN {
            assert!(find(name, None).is_ok(), "{name}");
        }
        let error = find("no-such", None).unwrap_err().to_string();
        assert!(error.contains("built in are: talon-ib"), "{error}");
    }
}
