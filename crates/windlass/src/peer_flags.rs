//! KubeFleet's hub-agent flags: its way of writing them, and those that have nothing to set here.
//!
//! A hub-agent's arguments work as they are. What has no meaning here is accepted, and one line of the log
//! says why it has no effect; a flag that KubeFleet does not know either is an error. docs/flags.md lists
//! them all, and a test holds it and the command line equal.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

/// Whether a flag may stand alone.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Alone it means true; a value comes after `=`.
    Switch,
    /// It needs a value.
    Value,
}

/// A flag that has no effect: its name, its form, the values that ask for what is so anyway, and what a
/// user has to know.
type Row = (&'static str, Form, &'static [&'static str], &'static str);

const NO_WEBHOOK: &str =
    "there is no webhook: CRD schemas and admission policies say what it would";
const NO_KLOG: &str = "the log is set by --log-level and --log-format";
const OWN_BACKOFF: &str =
    "what fails is tried again with a pause of its own that grows to a minute";
const RAILS: &str = "guard rails are manifests: apply deploy/guard-rails (docs/deploy.md)";

const ROWS: [Row; 44] = [
    (
        "leader-election-qps",
        Form::Value,
        &[],
        "the election has a connection of its own, with a request per retry period",
    ),
    (
        "leader-election-burst",
        Form::Value,
        &[],
        "the election has a connection of its own, with a request per retry period",
    ),
    (
        "enable-pprof",
        Form::Switch,
        &["false"],
        "there is no pprof; memory, tasks and requests are at /metrics",
    ),
    (
        "pprof-port",
        Form::Value,
        &[],
        "there is no pprof; memory, tasks and requests are at /metrics",
    ),
    (
        "resync-period",
        Form::Value,
        &[],
        "nothing is read again by the clock: watches tell of every change",
    ),
    ("enable-webhook", Form::Switch, &["false"], NO_WEBHOOK),
    (
        "webhook-client-connection-type",
        Form::Value,
        &[],
        NO_WEBHOOK,
    ),
    ("webhook-service-name", Form::Value, &[], NO_WEBHOOK),
    ("use-cert-manager", Form::Switch, &["false"], NO_WEBHOOK),
    ("enable-guard-rail", Form::Switch, &["false"], RAILS),
    ("whitelisted-users", Form::Value, &[""], RAILS),
    (
        "deny-modify-member-cluster-labels",
        Form::Switch,
        &["false"],
        RAILS,
    ),
    (
        "enable-pdbs",
        Form::Switch,
        &["true"],
        "PodDisruptionBudgets may always be made on the hub",
    ),
    (
        "enable-admission-policy-manager",
        Form::Switch,
        &["false"],
        RAILS,
    ),
    ("admission-policy-manager-config", Form::Value, &[""], RAILS),
    (
        "enable-v1alpha1-apis",
        Form::Switch,
        &["false"],
        "v1alpha1 is not served; use v1beta1 or v1",
    ),
    (
        "enable-staged-update-run-apis",
        Form::Switch,
        &["true"],
        "what a hub can do is not turned off by flags; take the rights on the kind away",
    ),
    (
        "enable-eviction-apis",
        Form::Switch,
        &["true"],
        "what a hub can do is not turned off by flags; take the rights on the kind away",
    ),
    (
        "enable-resource-placement",
        Form::Switch,
        &["true"],
        "what a hub can do is not turned off by flags; take the rights on the kind away",
    ),
    (
        "networking-agents-enabled",
        Form::Switch,
        &["false"],
        "the networking agents are not waited for when a cluster joins or leaves",
    ),
    (
        "work-pending-grace-period",
        Form::Value,
        &[],
        "KubeFleet does not use it either",
    ),
    (
        "concurrent-resource-change-syncs",
        Form::Value,
        &[],
        "a change is told to the placements that select it at once, without workers",
    ),
    (
        "max-fleet-size",
        Form::Value,
        &[],
        "nothing is sized by it: the fleet may grow",
    ),
    ("rate-limiter-base-delay", Form::Value, &[], OWN_BACKOFF),
    ("rate-limiter-max-delay", Form::Value, &[], OWN_BACKOFF),
    ("rate-limiter-qps", Form::Value, &[], OWN_BACKOFF),
    ("rate-limiter-bucket-size", Form::Value, &[], OWN_BACKOFF),
    (
        "resource-snapshot-creation-minimum-interval",
        Form::Value,
        &["0", "0s"],
        "no snapshot waits: changes are gathered for as long as they keep coming, a few seconds at most",
    ),
    (
        "resource-changes-collection-duration",
        Form::Value,
        &["0", "0s"],
        "no snapshot waits: changes are gathered for as long as they keep coming, a few seconds at most",
    ),
    ("v", Form::Value, &[], NO_KLOG),
    ("vmodule", Form::Value, &[], NO_KLOG),
    ("logtostderr", Form::Switch, &["true"], NO_KLOG),
    ("alsologtostderr", Form::Switch, &["true"], NO_KLOG),
    ("stderrthreshold", Form::Value, &[], NO_KLOG),
    ("log_dir", Form::Value, &[""], NO_KLOG),
    ("log_file", Form::Value, &[""], NO_KLOG),
    ("log_file_max_size", Form::Value, &[], NO_KLOG),
    ("log_backtrace_at", Form::Value, &[""], NO_KLOG),
    ("add_dir_header", Form::Switch, &["false"], NO_KLOG),
    ("skip_headers", Form::Switch, &["false"], NO_KLOG),
    ("skip_log_headers", Form::Switch, &["false"], NO_KLOG),
    ("one_output", Form::Switch, &["false"], NO_KLOG),
    (
        "legacy_stderr_threshold_behavior",
        Form::Switch,
        &[],
        NO_KLOG,
    ),
    (
        "enable-v1beta1-apis",
        Form::Switch,
        &["true"],
        "v1beta1 is always served",
    ),
];

/// The flags without effect that were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithoutEffect {
    given: Vec<(&'static str, String)>,
}

impl WithoutEffect {
    /// One line for each flag that asks for something that it does not get.
    pub fn warnings(&self) -> Vec<String> {
        let warning = |(name, value): &(&'static str, String)| {
            let (.., same, why) = ROWS.iter().find(|(row, ..)| row == name)?;
            let asks = !same.contains(&value.as_str());
            asks.then(|| format!("--{name}={value} has no effect: {why}"))
        };
        self.given.iter().filter_map(warning).collect()
    }
}

impl clap::Args for WithoutEffect {
    fn augment_args(command: Command) -> Command {
        command.args(ROWS.map(|(name, form, ..)| {
            let arg = Arg::new(name)
                .long(name)
                .hide(true)
                .action(ArgAction::Append);
            match form {
                Form::Value => arg.num_args(1).allow_hyphen_values(true),
                Form::Switch => arg
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true"),
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for WithoutEffect {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Vec::new();
        for (name, form, ..) in ROWS {
            if matches.value_source(name) != Some(ValueSource::CommandLine) {
                continue;
            }
            // As in Go, the last one counts.
            let Some(value) = matches.get_many::<String>(name).and_then(Iterator::last) else {
                continue;
            };
            let value = match form {
                Form::Switch => crate::cli::yes(value)
                    .map_err(|error| invalid(name, &error))?
                    .to_string(),
                Form::Value => value.clone(),
            };
            given.push((name, value));
        }
        Ok(Self { given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn invalid(name: &str, why: &str) -> clap::Error {
    clap::Error::raw(
        clap::error::ErrorKind::InvalidValue,
        format!("--{name}: {why}\n"),
    )
}

/// The arguments as our parser knows them. In Go one dash is as good as two, and the hub-agent has no
/// commands: arguments that begin with a flag are the hub's.
pub fn as_ours(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    let text = |index: usize| args.get(index).and_then(|arg| arg.to_str());
    let own = ["-h", "--help", "-V", "--version"];
    if text(1).is_some_and(|first| first.starts_with('-') && !own.contains(&first)) {
        args.insert(1, "hub".into());
    }
    if args.get(1).is_none_or(|command| command != "hub") {
        return args;
    }
    for arg in args.iter_mut().skip(2) {
        let Some(flag) = arg.to_str().and_then(|text| text.strip_prefix('-')) else {
            continue;
        };
        let is_flag =
            flag.starts_with(|c: char| c.is_ascii_alphabetic()) && !["h", "V"].contains(&flag);
        if is_flag {
            *arg = format!("--{flag}").into();
        }
    }
    args
}

#[cfg(test)]
#[path = "peer_flags_test.rs"]
mod tests;
