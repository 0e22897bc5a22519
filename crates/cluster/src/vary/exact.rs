//! Results as text that another process reads back bit by bit: JSON in which numbers with a fraction are texts of their bits.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// As text.
pub(super) fn text(of: &impl Serialize) -> Result<String, String> {
    let value = serde_json::to_value(of).map_err(|e| e.to_string())?;
    Ok(packed(value).to_string())
}

/// Back again.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    serde_json::from_value(unpacked(value)?).map_err(|e| e.to_string())
}

fn packed(value: Value) -> Value {
    match value {
        Value::Number(n) => match n.as_f64().filter(|_| n.is_f64()) {
            Some(f) => Value::String(format!("f{:016x}", f.to_bits())),
            None => Value::Number(n),
        },
        Value::String(text) => Value::String(format!("s{text}")),
        Value::Array(all) => all.into_iter().map(packed).collect(),
        Value::Object(all) => {
            let each = all.into_iter().map(|(key, value)| (key, packed(value)));
            Value::Object(each.collect())
        }
        other => other,
    }
}

fn unpacked(value: Value) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => match text.split_at_checked(1) {
            Some(("s", text)) => Value::String(text.to_owned()),
            Some(("f", bits)) => {
                let bits = u64::from_str_radix(bits, 16).map_err(|e| e.to_string())?;
                Value::from(f64::from_bits(bits))
            }
            _ => return Err("a text of neither kind".to_owned()),
        },
        Value::Array(all) => {
            let all: Result<Vec<Value>, String> = all.into_iter().map(unpacked).collect();
            Value::Array(all?)
        }
        Value::Object(all) => {
            let each = all.into_iter().map(|(key, v)| Ok((key, unpacked(v)?)));
            let all: Result<Map<String, Value>, String> = each.collect();
            Value::Object(all?)
        }
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use run::model::FabricStudy;

    #[test]
    fn what_is_read_back_is_the_same_bit_by_bit() {
        let mut study = FabricStudy {
            name: "f0000".to_owned(),
            messages: 7,
            ..FabricStudy::default()
        };
        let mut bits = 1_u64;
        for _ in 0..1_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let found = f64::from_bits(bits);
            if found.is_finite() {
                study.latency_growth_ns = Some(found);
                let back: FabricStudy = read(&text(&study).unwrap()).unwrap();
                assert_eq!(
                    back.latency_growth_ns.map(f64::to_bits),
                    Some(found.to_bits())
                );
                assert_eq!(back, study);
            }
        }
        for bad in ["", "{}x", "{\"name\":\"x\"}", "{\"name\":\"fzz\"}"] {
            assert!(read::<FabricStudy>(bad).is_err(), "{bad}");
        }
    }
}
