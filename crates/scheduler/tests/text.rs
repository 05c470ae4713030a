//! Quantities and label selectors.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use proptest::prelude::*;
use serde_json::json;
use windlass_scheduler::quantity::{Quantity, QuantityError};
use windlass_scheduler::selector::{self, SelectorError};

#[test]
fn quantities_are_exact() {
    const ONE: i128 = 1_000_000_000;
    let rows: [(&str, i128); 27] = [
        ("0", 0),
        ("0E9999", 0),
        ("1", ONE),
        ("+1", ONE),
        ("-1", -ONE),
        ("1.5", ONE * 3 / 2),
        (".5", ONE / 2),
        ("5.", 5 * ONE),
        ("007", 7 * ONE),
        ("1n", 1),
        ("1u", 1000),
        ("250m", ONE / 4),
        ("1k", 1000 * ONE),
        ("1M", 1_000_000 * ONE),
        ("1G", ONE * ONE),
        ("1E", ONE * ONE * ONE),
        ("1Ki", 1024 * ONE),
        ("1.5Gi", 1_610_612_736 * ONE),
        ("1Ei", (1 << 60) * ONE),
        ("1e3", 1000 * ONE),
        ("1E3", 1000 * ONE),
        ("1e+3", 1000 * ONE),
        ("25E-2", ONE / 4),
        // Finer than 10⁻⁹ rounds away from zero.
        ("0.1n", 1),
        ("-0.1n", -1),
        ("1e-99", 1),
        ("1.0000000001", ONE + 1),
    ];
    for (text, nanos) in rows {
        assert_eq!(
            Quantity::parse(text).map(Quantity::nanos),
            Ok(nanos),
            "{text}"
        );
    }
    for text in [
        "", "+", "-", ".", "1..2", "1.2.3", "abc", "1 ", " 1", "1K", "1ki", "1mi", "1e", "1e+",
        "1e1.5", "--1", "+-1", "1Kim", "0x10", "1µ", "v1.30.2", "1e--1", "٣",
    ] {
        assert_eq!(
            Quantity::parse(text),
            Err(QuantityError::Malformed),
            "{text}"
        );
    }
    for text in ["1e31", "1e99999999999", "999999999999999Ei"] {
        assert_eq!(
            Quantity::parse(text),
            Err(QuantityError::OutOfRange),
            "{text}"
        );
    }
    assert_eq!(Quantity::parse("1000m"), Quantity::parse("1"));
    assert!(Quantity::parse("1Gi").unwrap() > Quantity::parse("1G").unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,24}") {
        let _ = Quantity::parse(&text);
    }

    #[test]
    fn milli_is_a_thousandth(value in -1_000_000_000_000_i64..1_000_000_000_000) {
        let milli = Quantity::parse(&format!("{value}m")).map(Quantity::nanos);
        prop_assert_eq!(milli, Ok(i128::from(value) * 1_000_000));
    }
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

#[test]
fn selectors_match_as_kubernetes_says() {
    let set = labels(&[("env", "prod"), ("zone", "a")]);
    let rows = [
        (json!({}), true),
        (json!({"matchLabels": {}}), true),
        (json!({"matchLabels": {"env": "prod"}}), true),
        (json!({"matchLabels": {"env": "prod", "zone": "b"}}), false),
        (json!({"matchLabels": {"other": "x"}}), false),
        (
            json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["dev", "prod"]}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["dev"]}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "no", "operator": "In", "values": ["dev"]}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["dev"]}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "no", "operator": "NotIn", "values": ["prod"]}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "env", "operator": "Exists"}]}),
            true,
        ),
        (
            json!({"matchExpressions": [{"key": "no", "operator": "Exists"}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]}),
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "no", "operator": "DoesNotExist"}]}),
            true,
        ),
        (
            json!({"matchLabels": {"env": "prod"}, "matchExpressions": [{"key": "no", "operator": "Exists"}]}),
            false,
        ),
    ];
    for (text, expected) in rows {
        let parsed: LabelSelector = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(selector::matches(&parsed, &set), Ok(expected), "{text}");
    }
}

#[test]
fn a_bad_selector_is_an_error_for_every_object() {
    let key = || "env".to_owned();
    let rows = [
        (
            "Is",
            json!(["x"]),
            SelectorError::UnknownOperator {
                key: key(),
                operator: "Is".to_owned(),
            },
        ),
        (
            "in",
            json!(["x"]),
            SelectorError::UnknownOperator {
                key: key(),
                operator: "in".to_owned(),
            },
        ),
        ("In", json!([]), SelectorError::ValuesMissing { key: key() }),
        (
            "NotIn",
            json!(null),
            SelectorError::ValuesMissing { key: key() },
        ),
        (
            "Exists",
            json!(["x"]),
            SelectorError::ValuesNotAllowed { key: key() },
        ),
    ];
    for (operator, values, expected) in rows {
        let parsed: LabelSelector = serde_json::from_value(json!({
            "matchLabels": {"never": "there"},
            "matchExpressions": [{"key": "env", "operator": operator, "values": values}],
        }))
        .unwrap();
        for set in [labels(&[]), labels(&[("env", "x")])] {
            assert_eq!(selector::matches(&parsed, &set), Err(expected.clone()));
        }
        assert!(!expected.to_string().is_empty());
    }
}
