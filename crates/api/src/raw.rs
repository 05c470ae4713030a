//! Schemas that a Rust type alone does not give: a whole object of any kind, an integer of any size.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// An embedded object of any kind: kept byte for byte as JSON, never interpreted by the schema.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(transparent)]
pub struct RawObject(pub serde_json::Value);

impl JsonSchema for RawObject {
    fn schema_name() -> Cow<'static, str> {
        "RawObject".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "x-kubernetes-embedded-resource": true,
        })
    }
}

/// A JSON value of any type.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(transparent)]
pub struct RawValue(pub serde_json::Value);

impl JsonSchema for RawValue {
    fn schema_name() -> Cow<'static, str> {
        "RawValue".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
    }
}

/// Schema of a JSON object with whatever fields.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Go's `int` has no format in a schema, Rust's integers all have one.
pub(crate) fn plain_integer(schema: &mut Schema) {
    schema.remove("format");
}
