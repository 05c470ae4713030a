//! What becomes of a classic repository's answers, right and wrong (reference, seed systems A6, A7, A12).

mod server;

use std::io::Write;
use std::time::Duration;

use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use server::{INDEX, Seen, Server, answer, cut, index, slow, source};
use windlass_addons::catalogue::InUse;
use windlass_addons::helm::{Limits, Reading, Validators, read};
use windlass_addons::{Failure, Fault, Source};
use windlass_cluster::clock;

const LIMITS: Limits = Limits {
    bytes: 1024 * 1024,
    charts: 100,
    pause: Duration::from_millis(5),
};

async fn reading(source: &Source) -> Result<Reading, Failure> {
    read(source, &InUse::new(), None, &LIMITS).await
}

/// Versions of the chart `app`.
fn versions(reading: &Reading) -> Vec<&str> {
    let Reading::Read { catalogue, .. } = reading else {
        return Vec::new();
    };
    let chart = catalogue.charts.get("app");
    let versions = chart.map_or(&[][..], |chart| &chart.versions);
    versions
        .iter()
        .map(|version| version.version.as_str())
        .collect()
}

#[allow(clippy::unwrap_used, reason = "it is a part of a test")]
fn packed(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Terminal(Fault),
    Transient,
}

use Class::{Terminal, Transient};

type Headers = &'static [(&'static str, &'static str)];

/// One row: what is answered, what it comes to, a part of the message, how many requests are made.
type Row = (fn() -> Response, Class, &'static str, usize);

#[tokio::test]
async fn each_wrong_answer_has_its_class() {
    let rows: &[Row] = &[
        (
            || answer(400, &[], ""),
            Terminal(Fault::SourceRejectedRequest),
            "400 Bad Request",
            1,
        ),
        (
            || answer(401, &[], ""),
            Terminal(Fault::AuthenticationFailed),
            "spec.secretRef",
            1,
        ),
        (
            || answer(403, &[], ""),
            Terminal(Fault::AuthenticationFailed),
            "403 Forbidden",
            1,
        ),
        (
            || answer(404, &[], ""),
            Terminal(Fault::SourceNotFound),
            "nothing of that name",
            1,
        ),
        (
            || answer(410, &[], ""),
            Terminal(Fault::SourceRejectedRequest),
            "410 Gone",
            1,
        ),
        (|| answer(408, &[], ""), Transient, "408 Request Timeout", 3),
        (|| answer(425, &[], ""), Transient, "425 Too Early", 3),
        (
            || answer(429, &[], ""),
            Transient,
            "429 Too Many Requests",
            3,
        ),
        (
            || answer(500, &[], ""),
            Transient,
            "500 Internal Server Error",
            3,
        ),
        (
            || answer(503, &[], ""),
            Transient,
            "503 Service Unavailable",
            3,
        ),
        (|| answer(599, &[], ""), Transient, "599", 3),
        (cut, Transient, "broke off after", 3),
        (
            || answer(300, &[], ""),
            Transient,
            "no redirect that can be followed",
            3,
        ),
        (
            || answer(302, &[], ""),
            Transient,
            "no redirect that can be followed",
            3,
        ),
        (|| answer(304, &[], ""), Transient, "304 Not Modified", 1),
        (|| answer(204, &[], ""), Transient, "it is empty", 1),
        (|| answer(200, &[], ""), Transient, "it is empty", 1),
        (|| answer(200, &[], " \n\n"), Transient, "it is empty", 1),
        (
            || answer(200, &[], "# nothing\n"),
            Transient,
            "it is empty",
            1,
        ),
        (
            || answer(200, &[], "<!DOCTYPE html><html>"),
            Transient,
            "web page",
            1,
        ),
        (
            || answer(200, &[], "Service is being updated"),
            Transient,
            "it is no map",
            1,
        ),
        (|| answer(200, &[], "{}"), Transient, "no apiVersion", 1),
        (
            || answer(200, &[], "entries: {}"),
            Transient,
            "no apiVersion",
            1,
        ),
        (
            || answer(200, &[], "apiVersion: v1"),
            Transient,
            "no entries",
            1,
        ),
        (
            || answer(200, &[], "apiVersion: v1\nentries:"),
            Transient,
            "no entries",
            1,
        ),
        (
            || answer(200, &[], &INDEX[..INDEX.len() - 8]),
            Transient,
            "answered with what is no index",
            1,
        ),
        (
            || answer(200, &[], r#"{"apiVersion":"v1","entries":{"#),
            Transient,
            "EOF",
            1,
        ),
        (
            || answer(200, &[], packed(INDEX.as_bytes())[..60].to_vec()),
            Transient,
            "no index",
            1,
        ),
        (
            || answer(200, &[("content-encoding", "br")], "x"),
            Transient,
            "encoding",
            1,
        ),
        (
            || answer(200, &[], vec![b'#'; 1024 * 1024 + 1]),
            Terminal(Fault::IndexTooLarge),
            "1048576 bytes",
            1,
        ),
        (
            || answer(200, &[], packed(&[b'\n'; 8 * 1024 * 1024])),
            Terminal(Fault::IndexTooLarge),
            "1048576 bytes",
            1,
        ),
    ];
    for (answered, class, part, requests) in rows {
        let answered = *answered;
        let server = Server::start(move |_, _| answered()).await;
        let failure = reading(&source(&server.url, &[], &[])).await.unwrap_err();
        let message = failure.to_string();
        let found = failure.fault().map_or(Transient, Terminal);
        assert_eq!(
            (found, server.seen().len()),
            (*class, *requests),
            "{message}"
        );
        assert!(message.contains(part), "{part}: {message}");
        let whole = format!("{}/index.yaml", server.url);
        assert!(
            message.contains(&whole),
            "the message says where: {message}"
        );
    }
}

#[tokio::test]
async fn a_good_answer_is_read_however_it_is_packed() {
    let json = r#"{"apiVersion":"v1","entries":{"app":[{"name":"app","version":"1.2.3"}]}}"#;
    let rows: [(Headers, Vec<u8>); 5] = [
        (&[], INDEX.as_bytes().to_vec()),
        (&[("content-type", "text/html")], json.as_bytes().to_vec()),
        (&[("content-encoding", "gzip")], packed(INDEX.as_bytes())),
        (
            &[("content-type", "application/gzip")],
            packed(json.as_bytes()),
        ),
        (&[], [b"\xef\xbb\xbf", INDEX.as_bytes()].concat()),
    ];
    for (headers, body) in rows {
        let headers: Vec<(String, String)> = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let server = Server::start(move |_, _| {
            let headers: Vec<_> = headers
                .iter()
                .map(|(n, v)| (n.as_str(), v.as_str()))
                .collect();
            answer(200, &headers, body.clone())
        })
        .await;
        let read = reading(&source(&server.url, &[], &[])).await.unwrap();
        assert_eq!(versions(&read), ["1.2.3"]);
        assert_eq!(server.seen()[0].header("accept-encoding"), Some("gzip"));
    }
}

#[tokio::test]
async fn what_passes_within_a_reading_is_no_failure() {
    let faults: [fn() -> Response; 3] = [|| answer(500, &[], ""), cut, || answer(429, &[], "")];
    for fault in faults {
        let server =
            Server::start(move |_, before| if before < 2 { fault() } else { index() }).await;
        let read = reading(&source(&server.url, &[], &[])).await.unwrap();
        assert_eq!((versions(&read), server.seen().len()), (vec!["1.2.3"], 3));
    }
}

#[tokio::test]
async fn a_server_that_says_how_long_is_left_alone() {
    let date = (clock::now() + Duration::from_secs(100)).strftime("%a, %d %b %Y %H:%M:%S GMT");
    let rows = [
        (429, "120".to_owned(), 120),
        (503, "7".to_owned(), 7),
        (429, date.to_string(), 100),
        (429, "Wed, 21 Oct 2015 07:28:00 GMT".to_owned(), 0),
        (429, "99999999999999999999999".to_owned(), u64::MAX),
    ];
    for (status, header, seconds) in rows {
        let value = header.clone();
        let server =
            Server::start(move |_, _| answer(status, &[("retry-after", &value)], "")).await;
        let failure = reading(&source(&server.url, &[], &[])).await.unwrap_err();
        let wait = failure.retry_after().unwrap().as_secs();
        // The date loses what the test has taken since.
        assert!(
            wait <= seconds && wait >= seconds.saturating_sub(30),
            "{header}: {wait}"
        );
        assert_eq!(
            (failure.fault(), server.seen().len()),
            (None, 1),
            "{header}"
        );
    }
}

#[tokio::test]
async fn an_unchanged_document_is_not_sent_again() {
    let server = Server::start(|seen: &Seen, _| {
        let known = (
            seen.header("if-none-match"),
            seen.header("if-modified-since"),
        );
        if known == (Some("\"one\""), Some("Tue, 01 Dec 2015 00:00:00 GMT")) {
            return answer(304, &[], "");
        }
        let headers = [
            ("etag", "\"one\""),
            ("last-modified", "Tue, 01 Dec 2015 00:00:00 GMT"),
        ];
        answer(200, &headers, INDEX)
    })
    .await;
    let source = source(&server.url, &[], &[]);
    let first = reading(&source).await.unwrap();
    let Reading::Read {
        validators,
        bytes,
        digest,
        ..
    } = first
    else {
        panic!("the first time it is read");
    };
    assert_eq!(bytes, INDEX.len() as u64);
    assert_eq!(digest, windlass_status::Digest::of_bytes(INDEX.as_bytes()));
    let second = read(&source, &InUse::new(), Some(&validators), &LIMITS).await;
    assert_eq!(second.unwrap(), Reading::Unchanged);
    let other = Validators {
        etag: Some("\"two\"".to_owned()),
        ..validators
    };
    let third = read(&source, &InUse::new(), Some(&other), &LIMITS).await;
    assert_eq!(versions(&third.unwrap()), ["1.2.3"]);
}

#[tokio::test]
async fn slow_and_absent_servers_end_with_the_time_and_say_what_was_missing() {
    let server = Server::start(|_, _| slow()).await;
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", mute.local_addr().unwrap());
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let rows = [
        (&server.url, "had sent only 45 bytes within 1s"),
        (&silent, "gave no answer within 1s"),
        (&gone, "Connection refused"),
    ];
    for (url, part) in rows {
        let mut source = source(url, &[], &[]);
        source.timeout = Duration::from_secs(1);
        let failure = reading(&source).await.unwrap_err();
        let message = failure.to_string();
        assert!(
            failure.fault().is_none() && message.contains(part),
            "{message}"
        );
    }
}

#[tokio::test]
async fn the_time_runs_over_all_tries_and_the_real_cause_is_told() {
    let server = Server::start(|_, before| {
        if before == 0 {
            answer(500, &[], "")
        } else {
            slow()
        }
    })
    .await;
    let mut source = source(&server.url, &[], &[]);
    source.timeout = Duration::from_secs(1);
    let message = reading(&source).await.unwrap_err().to_string();
    assert!(
        message.contains("500 Internal Server Error; tried again: "),
        "{message}"
    );
    assert_eq!(server.seen().len(), 2);
}
