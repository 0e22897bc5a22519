//! The same for programs. Keys are in docs/run-folder.md.

use serde_json::{Value, json};
use settings::{Judged, Plan, Step};
use units::{Bytes, Rate};

use crate::ask::Asked;
use crate::change::Undone;
use crate::tuner::{State, Verified};

/// A plan.
pub fn plan_json(asked: &Asked) -> Value {
    let plan = &asked.plan;
    let request = &plan.request;
    json!({
        "rate_bits_per_second": request.rate.as_bits_per_second(),
        "rtt_ns": request.rtt.as_ns(),
        "connections": request.connections,
        "role": request.role.name(),
        "loss_rate": request.loss_rate,
        "assumed": asked.assumed,
        "device": asked.facts.device.as_ref().map(|one| &one.name),
        "kernel": format!("{}.{}", asked.facts.kernel.0, asked.facts.kernel.1),
        "first_namespace": asked.facts.first_namespace,
        "window_bytes": plan.window.as_u64(),
        "receive_buffer_min_bytes": plan.receive_buffer_min.as_u64(),
        "rate_before_bits_per_second": plan.rate_before.map(Rate::as_bits_per_second),
        "rate_after_bits_per_second": plan.rate_after.map(Rate::as_bits_per_second),
        "refused": plan.refused,
        "steps": plan.steps.iter().map(step).collect::<Vec<_>>(),
        "enough": plan.enough.iter().map(|one| json!({
            "key": one.key.to_string(), "value": one.value, "why": one.why,
        })).collect::<Vec<_>>(),
        "cannot": plan.cannot.iter().map(|one| json!({
            "key": one.key.to_string(), "why": one.why,
        })).collect::<Vec<_>>(),
        "advice": plan.advice.iter().map(|one| json!({
            "about": one.about, "text": one.text,
        })).collect::<Vec<_>>(),
        "memory": memory(plan),
        "programs": asked.programs.iter().map(|one| json!({
            "name": one.name, "what": one.what,
        })).collect::<Vec<_>>(),
        "judged": asked.judged.iter().map(judged).collect::<Vec<_>>(),
    })
}

fn step(step: &Step) -> Value {
    json!({
        "key": step.key.to_string(),
        "old": step.old,
        "new": step.new,
        "why": step.why,
        "cost": step.cost,
        "scope": step.scope.name(),
        "from": step.from,
        "restart": step.restart,
        "writers": step.writers,
    })
}

fn memory(plan: &Plan) -> Value {
    json!({
        "usual_bytes": plan.memory.usual.as_u64(),
        "worst_bytes": plan.memory.worst.as_u64(),
        "needed_bytes": plan.memory.needed.as_u64(),
        "limit_bytes": plan.memory.limit.map(Bytes::as_u64),
    })
}

fn judged(one: &Judged) -> Value {
    json!({
        "line": one.line,
        "key": one.key,
        "value": one.value,
        "judgement": one.judgement.name(),
        "why": one.why,
        "instead": one.instead,
    })
}

/// Where a host stands.
pub fn state_json(state: &State) -> Value {
    json!({
        "state": state.word,
        "what": state.what,
        "at": state.at,
        "journal": state.folder.to_string_lossy(),
        "values": state.values.iter().map(|(key, ours, now)| json!({
            "key": key, "ours": ours, "now": now,
        })).collect::<Vec<_>>(),
    })
}

/// What an undo did.
pub fn undone_json(undone: &Undone) -> Value {
    let pairs = |all: &[(String, String)], name: &str| -> Vec<Value> {
        all.iter()
            .map(|(key, text)| json!({"key": key, name: text}))
            .collect()
    };
    json!({
        "restored": undone.restored,
        "foreign": pairs(&undone.foreign, "now"),
        "failed": pairs(&undone.failed, "why"),
    })
}

/// What a verification found.
pub fn verified_json(verified: &Verified) -> Value {
    json!({
        "holds": verified.checks.iter().all(|check| check.holds),
        "checks": verified.checks.iter().map(|check| json!({
            "what": check.what, "expected": check.expected, "found": check.found, "holds": check.holds,
        })).collect::<Vec<_>>(),
    })
}
