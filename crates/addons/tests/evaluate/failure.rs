//! What an answer's status code comes to (reference, seed systems A6).

use std::collections::BTreeSet;
use std::time::Duration;

use windlass_addons::failure::{Failure, Fault};

const ALL: [Fault; 7] = [
    Fault::AuthenticationFailed,
    Fault::SourceNotFound,
    Fault::SourceRejectedRequest,
    Fault::InvalidRepositoryUrl,
    Fault::UnsupportedRepositoryType,
    Fault::InvalidCredentials,
    Fault::IndexTooLarge,
];

fn of(code: u16) -> Option<Failure> {
    let asked = Some(Duration::from_secs(7));
    Failure::of_status(code, asked, format!("answered {code}"))
}

#[test]
fn status_codes() {
    use Fault::{AuthenticationFailed, SourceNotFound, SourceRejectedRequest};
    let rows: [(&[u16], Option<Fault>); 5] = [
        (&[401, 403], Some(AuthenticationFailed)),
        (&[404], Some(SourceNotFound)),
        (
            &[
                400, 402, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 421,
                422, 423, 424, 426, 428, 431, 451, 499,
            ],
            Some(SourceRejectedRequest),
        ),
        (&[408, 425, 429], None),
        (
            &[
                500, 501, 502, 503, 504, 505, 507, 508, 511, 520, 599, 600, 999,
            ],
            None,
        ),
    ];
    for (codes, fault) in rows {
        for &code in codes {
            let failure = of(code).unwrap();
            assert_eq!(failure.fault(), fault, "{code}");
            assert_eq!(failure.to_string(), format!("answered {code}"));
            // A server may ask us to stay away for a while only where we come again.
            let asked = fault.is_none().then_some(Duration::from_secs(7));
            assert_eq!(failure.retry_after(), asked, "{code}");
        }
    }
    for code in [100, 200, 204, 206, 301, 302, 304, 307, 308, 399] {
        assert_eq!(of(code), None, "{code}");
    }
}

#[test]
fn every_code_from_400_is_a_failure() {
    for code in 400..=u16::MAX {
        assert!(of(code).is_some(), "{code}");
    }
}

#[test]
fn reasons_are_words_that_conditions_accept_and_differ() {
    let reasons: BTreeSet<_> = ALL.iter().map(|fault| fault.reason()).collect();
    assert_eq!(reasons.len(), ALL.len());
    assert_eq!(
        reasons.into_iter().collect::<Vec<_>>(),
        [
            "AuthenticationFailed",
            "IndexTooLarge",
            "InvalidCredentials",
            "InvalidRepositoryURL",
            "SourceNotFound",
            "SourceRejectedRequest",
            "UnsupportedRepositoryType",
        ]
    );
}

#[test]
fn a_failure_that_may_pass_asks_for_no_time_by_itself() {
    let failure = Failure::transient("connection reset");
    assert_eq!((failure.fault(), failure.retry_after()), (None, None));
    let failure = Failure::terminal(Fault::IndexTooLarge, "over 100 MiB");
    assert_eq!(failure.fault(), Some(Fault::IndexTooLarge));
    assert_eq!(failure.retry_after(), None);
}
