//! The process' log: text for people, or one JSON object per line in which the placement and the cluster
//! that a line is about stand beside its message.

use std::fmt;
use std::io::IsTerminal;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::LookupSpan;
use windlass_cluster::clock;

use crate::cli::Failure;

/// Libraries that carry requests. That a cluster can't be reached is told by its conditions, events and
/// metrics, once; kube's client would say it at ERROR for each attempt.
const CARRIERS: [&str; 6] = [
    "kube_client=off",
    "kube_runtime=off",
    "hyper=warn",
    "hyper_util=warn",
    "tower=warn",
    "rustls=warn",
];

/// Form of the log.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object per line.
    Json,
}

/// Begins to log to stderr.
pub fn start(format: LogFormat, level: &str) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(directives(level))
        .map_err(|error| format!("--log-level {level}: {error}"))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().event_format(Flat).init(),
    }
    Ok(())
}

/// A level alone is about our own code; directives are taken as they stand.
fn directives(level: &str) -> String {
    let is_level = level.parse::<tracing::Level>().is_ok();
    match is_level {
        true => format!("{level},{}", CARRIERS.join(",")),
        false => level.to_owned(),
    }
}

/// Lines on which fields of the spans around stand beside those of the event.
struct Flat;

impl<S> FormatEvent<S, JsonFields> for Flat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        let metadata = event.metadata();
        line.insert("timestamp".into(), clock::precise_now().to_string().into());
        line.insert("level".into(), metadata.level().as_str().into());
        line.insert("target".into(), metadata.target().into());
        event.record(&mut Fields(&mut line));
        for span in context.event_scope().into_iter().flatten() {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<JsonFields>>();
            let fields = fields.and_then(|fields| serde_json::from_str(&fields.fields).ok());
            if let Some(Value::Object(fields)) = fields {
                for (name, value) in fields {
                    line.entry(name).or_insert(value);
                }
            }
        }
        let text = serde_json::to_string(&line).map_err(|_| fmt::Error)?;
        writeln!(writer, "{text}")
    }
}

/// Puts fields into a line.
struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: &str, say: impl FnOnce()) -> Vec<Value> {
        let lines = Lines::default();
        let writer = lines.clone();
        let log = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(directives(level)))
            .with_writer(move || writer.clone())
            .json()
            .event_format(Flat)
            .finish();
        tracing::subscriber::with_default(log, say);
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn what_a_line_is_about_stands_beside_its_message() {
        let lines = logged("warn", || {
            let span =
                tracing::error_span!("work", placement = tracing::field::Empty, cluster = "east");
            span.record("placement", "web");
            span.in_scope(|| tracing::warn!(number = 3, "it \"fails\""));
            tracing::info!("below the level");
            tracing::warn!(cluster = Some("west"), placement = None::<&str>, "outside");
        });
        assert_eq!(lines.len(), 2);
        for (field, value) in [
            ("placement", Value::from("web")),
            ("cluster", "east".into()),
            ("number", 3.into()),
            ("message", "it \"fails\"".into()),
            ("level", "WARN".into()),
        ] {
            assert_eq!(lines[0][field], value, "{field}");
        }
        let at = lines[0]["timestamp"].as_str().unwrap();
        assert!(at.parse::<jiff::Timestamp>().is_ok(), "{at}");
        assert_eq!(
            (&lines[1]["cluster"], lines[1].get("placement")),
            (&"west".into(), None)
        );
    }

    #[test]
    fn carriers_are_silent_unless_they_are_asked_for() {
        let say = || {
            tracing::error!(target: "kube_client::client::builder", "failed with error");
            tracing::info!(target: "hyper::proto", "connected");
            tracing::info!(target: "windlass_hub", "ours");
        };
        for (level, expected) in [
            ("info", 1),
            ("INFO", 1),
            ("debug", 1),
            ("error", 0),
            ("info,windlass_hub=debug", 3),
            ("warn,kube_client=error", 1),
        ] {
            assert_eq!(logged(level, say).len(), expected, "{level}");
        }
    }
}
