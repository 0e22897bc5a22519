//! Whatever a peer sends as a message, the reason why it is refused is one plain line.

use crate::hostile::{HOSTILE, assert_clean_lines};
use crate::values::{Which, make};
use measure::message::{self, Message};
use serde_json::Value;

/// Replaces the `left`th text, or the name of a member.
fn replace(value: &mut Value, left: &mut usize) -> bool {
    match value {
        Value::String(text) if *left == 0 => {
            *text = HOSTILE.to_owned();
            true
        }
        Value::String(_) | Value::Number(_) if *left == 0 => {
            *value = Value::from(HOSTILE);
            true
        }
        Value::String(_) | Value::Number(_) => {
            *left -= 1;
            false
        }
        Value::Array(items) => items.iter_mut().any(|item| replace(item, left)),
        Value::Object(members) => {
            for name in members.keys().cloned().collect::<Vec<_>>() {
                if *left == 0 {
                    let member = members.remove(&name).unwrap_or_default();
                    members.insert(HOSTILE.to_owned(), member);
                    return true;
                }
                *left -= 1;
                if members
                    .get_mut(&name)
                    .is_some_and(|member| replace(member, left))
                {
                    return true;
                }
            }
            false
        }
        _ => false,
    }
}

#[test]
fn a_refused_message_is_one_plain_line() {
    let mut refused = 0;
    for variant in 0..40 {
        let (Some(made), _) = make::<Message>(Which::Only(usize::MAX), HOSTILE, variant) else {
            continue;
        };
        let made = serde_json::to_value(made).unwrap();
        for at in 0.. {
            let (mut changed, mut left) = (made.clone(), at);
            if !replace(&mut changed, &mut left) {
                break;
            }
            let text = changed.to_string();
            let mut bytes = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
            bytes.extend(text.as_bytes());
            if let Err(error) = message::decode(&bytes, 1 << 20) {
                refused += 1;
                let error = error.to_string();
                assert!(!error.contains('\n'), "{error:?}");
                assert_clean_lines(&error, &format!("variant {variant}, place {at}"));
            }
        }
    }
    assert!(refused > 50, "{refused} refused");
    let foreign = message::describe_foreign(HOSTILE.as_bytes());
    assert_clean_lines(&foreign, "no greeting");
}
