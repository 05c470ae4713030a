//! JSON patches on one manifest.

use json_patch::jsonptr::{Pointer, PointerBuf};
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::Value;
use windlass_api::overrides::{JsonPatchOperator, JsonPatchOverride, OverrideType};

use crate::error::RenderError;
use crate::object::ObjectId;
use crate::overrides::{Effective, Override};
use crate::variables::substitute;
use crate::{Part, Rendered, View, scope};

/// Works the overrides that select a manifest in.
pub fn render_part(
    view: &View<'_>,
    effective: &[Effective<'_>],
    part: &Part<'_>,
) -> Result<Rendered, Box<RenderError>> {
    let id = ObjectId::of(part.object);
    let mut changed: Option<Value> = None;
    for Effective { source, rules } in effective.iter().filter(|e| e.source.selects(&id)) {
        for (position, rule) in rules {
            let refused = |path, why| {
                Box::new(RenderError {
                    cluster: view.cluster.name.to_owned(),
                    object: Some(id.to_string()),
                    envelope: part.envelope.cloned(),
                    by: Some(source.name.clone()),
                    rule: Some(*position),
                    path,
                    why,
                })
            };
            if rule.override_type == Some(OverrideType::Delete) {
                if source.is_administrators() {
                    return Ok(Rendered::LeftOut);
                }
                let left_out = view.confinement.leave_out(part.object);
                return match left_out {
                    Ok(()) => Ok(Rendered::LeftOut),
                    Err(refusal) => Err(refused(None, refusal.to_string())),
                };
            }
            let object = changed.get_or_insert_with(|| part.object.clone());
            for patch in rule.json_patch_overrides.as_deref().unwrap_or_default() {
                apply(view, source, patch, object)
                    .map_err(|why| refused(Some(patch.path.clone()), why))?;
            }
        }
    }
    Ok(match changed {
        Some(object) if object != *part.object => Rendered::Changed(object),
        _ => Rendered::Same,
    })
}

fn apply(
    view: &View<'_>,
    source: &Override<'_>,
    patch: &JsonPatchOverride,
    object: &mut Value,
) -> Result<(), String> {
    let path = PointerBuf::parse(patch.path.as_str())
        .map_err(|_| "this is no JSON pointer: it starts with /, and ~ is written ~0".to_owned())?;
    if let Some(why) = out_of_bounds(&path) {
        return Err(why);
    }
    let value = || {
        let value = patch.value.as_ref().map_or(&Value::Null, |value| &value.0);
        substitute(value, view.cluster)
    };
    let op = match patch.op {
        JsonPatchOperator::Add => PatchOperation::Add(AddOperation {
            path: path.clone(),
            value: value()?,
        }),
        JsonPatchOperator::Replace => PatchOperation::Replace(ReplaceOperation {
            path: path.clone(),
            value: value()?,
        }),
        JsonPatchOperator::Remove => PatchOperation::Remove(RemoveOperation { path: path.clone() }),
    };
    let guard = scope::PatchGuard::before(view, source, object);
    if json_patch::patch_unsafe(object, std::slice::from_ref(&op)).is_err() {
        return Err(explain(&path, patch.op, object));
    }
    guard.after(object)
}

/// What no override may touch (API §6.4): what makes the object the one that it is, what the hub keeps
/// track of it by, and its status.
fn out_of_bounds(path: &Pointer) -> Option<String> {
    let tokens: Vec<_> = path
        .tokens()
        .map(|token| token.decoded().into_owned())
        .collect();
    let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let what = match tokens.as_slice() {
        [] => "the object as a whole can't be replaced; name a field",
        ["apiVersion" | "kind", ..] => {
            "apiVersion and kind say which object it is, and can't be changed"
        }
        ["status", ..] => "the status is the cluster's, and can't be changed",
        ["metadata"] => "metadata as a whole can't be changed; name a label or an annotation",
        ["metadata", "name" | "namespace", ..] => {
            "name and namespace say which object it is, and can't be changed"
        }
        ["metadata", field, ..] if !["labels", "annotations"].contains(field) => {
            "of metadata, only labels and annotations can be changed"
        }
        all if all.iter().any(|token| token.is_empty()) => "the path has an empty segment",
        _ => return None,
    };
    Some(what.to_owned())
}

/// Why an operation can't be done: how much of its path is there.
fn explain(path: &Pointer, op: JsonPatchOperator, object: &Value) -> String {
    let mut here = object;
    let mut so_far = String::new();
    let tokens: Vec<_> = path.tokens().collect();
    for (at, token) in tokens.iter().enumerate() {
        let key = token.decoded();
        let last = at + 1 == tokens.len();
        let next = match here {
            Value::Object(fields) => fields.get(key.as_ref()),
            Value::Array(items) => match key.parse::<usize>() {
                Ok(index) if index < items.len() => items.get(index),
                _ => {
                    return format!(
                        "{} is a list of {} item(s) and has no position {key:?}",
                        place(&so_far),
                        items.len()
                    );
                }
            },
            _ => return format!("{} is neither an object nor a list", place(&so_far)),
        };
        let Some(next) = next else {
            let hint = match op {
                JsonPatchOperator::Add => "add that first, with what belongs into it",
                JsonPatchOperator::Remove => "there is nothing to remove",
                JsonPatchOperator::Replace if last => "use op add",
                JsonPatchOperator::Replace => "there is nothing to replace",
            };
            return format!("the object has no {so_far}/{}; {hint}", token.encoded());
        };
        so_far = format!("{so_far}/{}", token.encoded());
        here = next;
    }
    "the operation can't be done there".to_owned()
}

fn place(pointer: &str) -> &str {
    if pointer.is_empty() {
        "the object"
    } else {
        pointer
    }
}
