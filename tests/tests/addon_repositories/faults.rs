//! What a server can do wrong, what that is called, and when it is asked again: once to a repository that was
//! never read, and once to one that was.

use serde_json::Value;
use windlass_status::kstatus::Status;
use windlass_tests::charts::{Reply, Web};
use windlass_tests::eventually;

use crate::{Bed, HEALTHY, IN_URL, PASSWORD, WRONG_PASSWORD, message, secret, time};

/// Who may read the guarded repository.
pub const USER: &str = "quartermaster";

/// An index of one chart.
pub const INDEX: &str = "apiVersion: v1
entries:
  web:
  - {apiVersion: v2, name: web, version: 1.0.0, urls: [web-1.0.0.tgz]}
";

/// What is expected of a fault.
#[derive(Clone, Copy)]
enum Class {
    /// Somebody has to mend something: asked again after an hour.
    Terminal(&'static str),
    /// It may pass: asked again after so many minutes, up to a tenth more, and unless the server has said
    /// when, also up to a tenth less.
    Transient(f64, Said),
}

#[derive(Clone, Copy, PartialEq)]
enum Said {
    Nothing,
    When,
}

use Class::{Terminal, Transient};

const USUAL: Class = Transient(5.0, Said::Nothing);

struct Row {
    name: &'static str,
    reply: Reply,
    class: Class,
    /// What the message says.
    words: &'static str,
    /// Another url than that of the reply.
    url: Option<String>,
}

fn row(name: &'static str, reply: Reply, class: Class, words: &'static str) -> Row {
    Row {
        name,
        reply,
        class,
        words,
        url: None,
    }
}

fn later(status: u16, seconds: &str) -> Reply {
    Reply::With(
        status,
        vec![("retry-after", seconds.to_owned())],
        Vec::new(),
    )
}

fn moved(to: &str) -> Reply {
    Reply::With(302, vec![("location", to.to_owned())], Vec::new())
}

/// Aliases that would be a thousand million entries.
fn bomb() -> Reply {
    let mut text = "apiVersion: v1\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..10 {
        let before = vec![format!("*a{}", level - 1); 10].join(",");
        text.push_str(&format!("a{level}: &a{level} [{before}]\n"));
    }
    Reply::text(&(text + "entries: {web: *a9}\n"))
}

fn answers() -> Vec<Row> {
    let status = Reply::status;
    let refused = Terminal("SourceRejectedRequest");
    vec![
        row("400", status(400), refused, "400 Bad Request"),
        row(
            "401",
            status(401),
            Terminal("AuthenticationFailed"),
            "spec.secretRef",
        ),
        row(
            "403",
            status(403),
            Terminal("AuthenticationFailed"),
            "403 Forbidden",
        ),
        row(
            "404",
            status(404),
            Terminal("SourceNotFound"),
            "404 Not Found",
        ),
        row("410", status(410), refused, "410 Gone"),
        row("451", status(451), refused, "451"),
        row("408", status(408), USUAL, "408 Request Timeout"),
        row("429", status(429), USUAL, "429 Too Many Requests"),
        row("429-5s", later(429, "5"), USUAL, "429 Too Many Requests"),
        row(
            "429-20m",
            later(429, "1200"),
            Transient(20.0, Said::When),
            "429 Too Many Requests",
        ),
        row(
            "429-1d",
            later(429, "86400"),
            Transient(60.0, Said::When),
            "429 Too Many Requests",
        ),
        row("500", status(500), USUAL, "500 Internal Server Error"),
        row(
            "503-20m",
            later(503, "1200"),
            Transient(20.0, Said::When),
            "503 Service Unavailable",
        ),
        row("cut", Reply::Cut(INDEX.into()), USUAL, "broke off after"),
        row("slow", Reply::Stuck(INDEX.into()), USUAL, "within 2s"),
        row(
            "html",
            Reply::text("<html><body>Log in first</body></html>"),
            USUAL,
            "no index",
        ),
        row("braces", Reply::text("{}"), USUAL, "no index"),
        row("empty", status(200), USUAL, "no index"),
        row(
            "null",
            Reply::text("apiVersion: v1\nentries: null\n"),
            USUAL,
            "no index",
        ),
        row("bomb", bomb(), USUAL, "a reference in place of"),
        row("304", status(304), USUAL, "304 Not Modified"),
        row(
            "loop",
            moved("index.yaml"),
            USUAL,
            "redirected more than 10 times",
        ),
        row(
            "ftp",
            moved("ftp://127.0.0.1/index.yaml"),
            refused,
            "is not followed",
        ),
        row(
            "metadata",
            moved("http://169.254.169.254/index.yaml"),
            refused,
            "link-local",
        ),
        // Who is sent on with credentials shows them to nobody.
        row(
            "told",
            moved(&format!("http://ada:{IN_URL}@127.0.0.1:1/?t={IN_URL}")),
            USUAL,
            "127.0.0.1:1",
        ),
    ]
}

fn servers(web: &Web) -> Vec<Row> {
    let elsewhere = |name, url: String, words| Row {
        url: Some(url),
        ..row(name, Reply::status(404), USUAL, words)
    };
    let tls = web.url().replace("http:", "https:");
    vec![
        elsewhere(
            "refused",
            format!("http://127.0.0.1:1/?token={IN_URL}"),
            "can't be reached",
        ),
        elsewhere(
            "no-name",
            "http://charts.invalid/".to_owned(),
            "can't be reached",
        ),
        elsewhere("wrong-tls", tls, "can't be reached"),
    ]
}

pub fn basic(user: &str, password: &str) -> String {
    let code = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let pair = format!("{user}:{password}");
    let mut text = String::from("Basic ");
    for three in pair.as_bytes().chunks(3) {
        let bits = three
            .iter()
            .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for place in 0..4 {
            let index = (bits >> (18 - 6 * place)) & 63;
            text.push(if place <= three.len() {
                char::from(code[index as usize])
            } else {
                '='
            });
        }
    }
    text
}

pub fn every_fault_is_called_by_its_name(bed: &Bed) {
    let answers = answers();
    let servers = servers(&bed.web);
    let mut manifests = Vec::new();
    for row in &answers {
        let good = format!("/latched/{}/index.yaml", row.name);
        bed.web.reply(&good, Reply::text(INDEX));
        let fresh = format!("/fresh/{}/index.yaml", row.name);
        bed.web.reply(&fresh, row.reply.clone());
        for folder in ["latched", "fresh"] {
            let url = format!("{}/{folder}/{}", bed.web.url(), row.name);
            // Only what is slow has to end soon.
            let timeout = if row.name == "slow" { "2s" } else { "20s" };
            let spec = format!("{{url: '{url}', timeout: {timeout}}}");
            manifests.push(crate::repository(&format!("{folder}-{}", row.name), &spec));
        }
    }
    for row in &servers {
        let spec = format!("{{url: '{}'}}", row.url.as_deref().unwrap());
        manifests.push(crate::repository(&format!("fresh-{}", row.name), &spec));
    }
    bed.fleet.apply("hub", &manifests.join("\n---\n"));
    for row in &answers {
        let name = format!("latched-{}", row.name);
        bed.stands(&name, HEALTHY, Status::Current);
        bed.web.reply(
            &format!("/latched/{}/index.yaml", row.name),
            row.reply.clone(),
        );
    }
    let names: Vec<String> = answers
        .iter()
        .map(|row| format!("latched-{}", row.name))
        .collect();
    let request = "windlass.dev/sync-requested-at=now";
    bed.fleet.kubectl(
        "hub",
        &format!("annotate addonrepo {} {request}", names.join(" ")),
    );
    println!(
        "| fault | never read | read before | kstatus | next | message |\n|---|---|---|---|---|---|"
    );
    for row in answers.iter().chain(&servers) {
        is_called_by_its_name(bed, row);
    }
    who_may_not_read_is_told_so(bed);
    // They would be read again in the middle of what counts requests; but for what is mended, deleted and handed
    // to another leader later.
    let fresh = answers
        .iter()
        .chain(&servers)
        .map(|row| format!("fresh-{}", row.name));
    let needed = [
        "fresh-404",
        "latched-401",
        "latched-500",
        "fresh-403",
        "fresh-400",
        "fresh-429-1d",
    ];
    let all = names.into_iter().chain(fresh);
    let all: Vec<String> = all
        .filter(|name| !needed.contains(&name.as_str()))
        .collect();
    bed.fleet
        .kubectl("hub", &format!("delete addonrepo {}", all.join(" ")));
}

fn is_called_by_its_name(bed: &Bed, row: &Row) {
    let (fresh, latched, verdict) = match row.class {
        Terminal(reason) => {
            let told = format!("Ready=False/{reason} Synced=False/SyncFailed Stalled=True/{reason}");
            (told.clone(), told, Status::Failed)
        }
        Transient(..) => (
            "Ready=Unknown/AwaitingInitialSync Synced=False/SyncFailed Reconciling=True/ProgressingWithRetry".to_owned(),
            "Ready=True/Success Synced=False/SyncFailed Reconciling=True/ProgressingWithRetry".to_owned(),
            Status::InProgress,
        ),
    };
    let name = format!("fresh-{}", row.name);
    let object = bed.stands(&name, &fresh, verdict);
    let said = message(&object, "Synced");
    assert!(said.contains(row.words), "{}: {said}", row.name);
    let minutes = is_asked_again_when_it_should(&object, row);
    assert!(bed.charts(&name).is_empty());
    let before = if row.url.is_some() {
        "-"
    } else {
        let name = format!("latched-{}", row.name);
        let object = bed.stands(&name, &latched, verdict);
        is_asked_again_when_it_should(&object, row);
        assert!(!object["status"]["lastSuccessfulFetchTime"].is_null());
        assert_eq!(object["status"]["chartCount"], 1, "{}", row.name);
        assert_eq!(bed.offers(&name), ["web: 1.0.0"], "{}", row.name);
        &latched
    };
    println!(
        "| {} | {fresh} | {before} | {verdict} | {minutes:.1} min | {said} |",
        row.name
    );
}

/// In how many minutes that is.
fn is_asked_again_when_it_should(object: &Value, row: &Row) -> f64 {
    let status = &object["status"];
    let synced = crate::condition(object, "Synced");
    let at = time(&synced["lastTransitionTime"]);
    let minutes = time(&status["nextSyncTime"])
        .duration_since(at)
        .as_secs_f64()
        / 60.0;
    let (failures, usual, least) = match row.class {
        Terminal(_) => (5, 60.0, 0.9),
        Transient(usual, Said::Nothing) => (1, usual, 0.9),
        Transient(usual, Said::When) => (1, usual, 1.0),
    };
    assert_eq!(status["consecutiveFetchFailures"], failures, "{}", row.name);
    // Whole seconds are stored.
    let (least, most) = (usual * least - 0.02, usual * 1.1 + 0.02);
    assert!(
        (least..=most).contains(&minutes),
        "{}: {minutes} minutes",
        row.name
    );
    minutes
}

/// Basic authentication of a classic repository, and an event for each turn.
fn who_may_not_read_is_told_so(bed: &Bed) {
    let reply = Reply::Guarded(basic(USER, PASSWORD), Box::new(Reply::text(INDEX)));
    bed.web.reply("/guarded/index.yaml", reply);
    let data = |password: &str| format!("{{username: {USER}, password: {password}}}");
    bed.fleet
        .apply("hub", &secret("guarded", &data(WRONG_PASSWORD)));
    let url = format!("{}/guarded", bed.web.url());
    let spec = format!("{{url: '{url}', secretRef: {{name: guarded}}}}");
    bed.repository("guarded", &spec);
    let refused = "Ready=False/AuthenticationFailed Synced=False/SyncFailed Stalled=True/AuthenticationFailed";
    let object = bed.stands("guarded", refused, Status::Failed);
    assert!(
        message(&object, "Ready").contains("the credentials do not do"),
        "{object}"
    );
    eventually("an event warns", || {
        let events = bed.events("guarded", "AuthenticationFailed");
        events.len() == 1 && events[0].starts_with("Warning ")
    });
    bed.fleet.apply("hub", &secret("guarded", &data(PASSWORD)));
    bed.stands("guarded", HEALTHY, Status::Current);
    assert_eq!(bed.asked("/guarded"), 2, "each Secret was tried once");
    eventually("an event tells of the end", || {
        bed.events("guarded", "Success")
            .contains(&"Normal The repository can be read.".to_owned())
    });
}
