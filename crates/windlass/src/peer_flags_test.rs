//! docs/flags.md, the command line and KubeFleet's list of flags are one.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args as _, CommandFactory, Parser};

use super::*;

/// Every flag of KubeFleet's hub-agent, with its default.
const PEER: [(&str, &str); 50] = [
    ("leader-elect", "false"),
    ("leader-lease-duration", "60s"),
    ("leader-renew-deadline", "45s"),
    ("leader-retry-period", "5s"),
    ("leader-election-namespace", "fleet-system"),
    ("leader-election-qps", "250"),
    ("leader-election-burst", "1000"),
    ("health-probe-bind-address", ":8081"),
    ("metrics-bind-address", ":8080"),
    ("enable-pprof", "false"),
    ("pprof-port", "6065"),
    ("hub-api-qps", "250"),
    ("hub-api-burst", "1000"),
    ("resync-period", "6h"),
    ("enable-webhook", "true"),
    ("webhook-client-connection-type", "url"),
    ("webhook-service-name", "fleetwebhook"),
    ("enable-guard-rail", "false"),
    ("whitelisted-users", ""),
    ("deny-modify-member-cluster-labels", "false"),
    ("enable-workload", "false"),
    ("enable-pdbs", "true"),
    ("use-cert-manager", "false"),
    ("enable-admission-policy-manager", "false"),
    ("admission-policy-manager-config", ""),
    ("enable-v1beta1-apis", "true"),
    ("enable-v1alpha1-apis", "false"),
    ("enable-cluster-inventory-apis", "true"),
    ("enable-staged-update-run-apis", "true"),
    ("enable-eviction-apis", "true"),
    ("enable-resource-placement", "true"),
    ("networking-agents-enabled", "false"),
    ("cluster-unhealthy-threshold", "60s"),
    ("force-delete-wait-time", "15m"),
    ("work-pending-grace-period", "15s"),
    ("skipped-propagating-apis", ""),
    ("allowed-propagating-apis", ""),
    ("skipped-propagating-namespaces", ""),
    ("concurrent-resource-change-syncs", "20"),
    ("max-fleet-size", "100"),
    ("max-concurrent-cluster-placement", "100"),
    ("rate-limiter-base-delay", "5ms"),
    ("rate-limiter-max-delay", "60s"),
    ("rate-limiter-qps", "10"),
    ("rate-limiter-bucket-size", "100"),
    ("resource-snapshot-creation-minimum-interval", "30s"),
    ("resource-changes-collection-duration", "15s"),
    ("v", "0"),
    ("kubeconfig", ""),
    ("add_dir_header", "false"),
];

/// Those whose default is another one here, with the reason in the document.
const OTHER_DEFAULT: [&str; 6] = [
    "leader-elect",
    "leader-lease-duration",
    "leader-renew-deadline",
    "leader-retry-period",
    "hub-api-qps",
    "health-probe-bind-address",
];

const DOCUMENT: &str = include_str!("../../../docs/flags.md");

struct Entry {
    peer: String,
    ours: String,
    about: String,
}

/// The rows of the document's tables, by flag.
fn document() -> BTreeMap<String, Entry> {
    let mut entries = BTreeMap::new();
    for line in DOCUMENT.lines().filter(|line| line.starts_with("| `--")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [flag, peer, ours, about] = cells[..] else {
            panic!("four cells: {line}");
        };
        let plain = |cell: &str| cell.trim_matches('`').to_owned();
        let entry = Entry {
            peer: plain(peer),
            ours: plain(ours),
            about: about.to_owned(),
        };
        let flag = plain(flag).trim_start_matches("--").to_owned();
        assert!(entries.insert(flag, entry).is_none(), "twice: {line}");
    }
    entries
}

fn hub() -> clap::Command {
    crate::Cli::command()
        .find_subcommand("hub")
        .unwrap()
        .clone()
}

#[test]
fn the_document_has_every_flag_and_no_other() {
    let known: BTreeSet<String> = document().into_keys().collect();
    let hub = hub();
    let ours: BTreeSet<String> = hub
        .get_arguments()
        .filter_map(|arg| arg.get_long())
        .map(str::to_owned)
        .collect();
    // Those of the log have one row together.
    let klog: BTreeSet<&str> = ROWS
        .iter()
        .filter(|row| row.3 == NO_KLOG)
        .map(|row| row.0)
        .collect();
    let listed = |name: &&String| !klog.contains(name.as_str()) && *name != "help";
    let ours: BTreeSet<&String> = ours.iter().filter(listed).collect();
    let known: BTreeSet<&String> = known.iter().filter(listed).collect();
    let differ: Vec<_> = ours.symmetric_difference(&known).collect();
    assert!(
        differ.is_empty(),
        "in one of docs/flags.md and the command line only: {differ:?}"
    );
    for flag in klog {
        assert!(DOCUMENT.contains(&format!("`--{flag}`")), "{flag}");
    }
}

#[test]
fn what_the_document_says_of_kubefleets_flags_is_so() {
    let (document, hub) = (document(), hub());
    for (flag, peer) in PEER {
        let Some(entry) = document.get(flag) else {
            assert!(
                ROWS.iter().any(|row| row.0 == flag && row.3 == NO_KLOG),
                "{flag} is missing"
            );
            continue;
        };
        assert_eq!(entry.peer, peer, "{flag}");
        if let Some((.., why)) = ROWS.iter().find(|row| row.0 == flag) {
            assert_eq!(entry.ours, "", "{flag} has no effect");
            assert_eq!(entry.about, format!("no effect: {why}"), "{flag}");
            continue;
        }
        let arg = hub
            .get_arguments()
            .find(|arg| arg.get_long() == Some(flag))
            .unwrap();
        let default = arg
            .get_default_values()
            .first()
            .map(|value| value.to_string_lossy());
        assert_eq!(entry.ours, default.unwrap_or_default(), "{flag}");
        let same = entry.ours == entry.peer || flag == "metrics-bind-address";
        assert_eq!(
            same,
            !OTHER_DEFAULT.contains(&flag),
            "{flag}: {} for {}",
            entry.ours,
            entry.peer
        );
    }
}

fn parsed(args: &[&str]) -> Result<WithoutEffect, String> {
    let args = ["/windlass"].iter().chain(args).map(OsString::from);
    let cli = crate::Cli::try_parse_from(as_ours(args)).map_err(|error| error.to_string())?;
    match cli.command {
        crate::Command::Hub(args) => Ok(args.without_effect),
        _ => Err("another command".to_owned()),
    }
}

/// What KubeFleet's chart gives its hub-agent, with its default values.
#[test]
fn the_arguments_of_kubefleets_chart_work() {
    let chart = [
        "--leader-elect=true",
        "--enable-webhook=true",
        "--webhook-service-name=fleetwebhook",
        "--enable-guard-rail=true",
        "--enable-workload=false",
        "--whitelisted-users=system:serviceaccount:fleet-system:hub-agent-sa",
        "--webhook-client-connection-type=service",
        "--v=5",
        "-add_dir_header",
        "--enable-v1beta1-apis=true",
        "--enable-cluster-inventory-apis=true",
        "--enable-staged-update-run-apis=true",
        "--enable-eviction-apis=true",
        "--enable-pprof=true",
        "--pprof-port=6065",
        "--max-concurrent-cluster-placement=100",
        "--concurrent-resource-change-syncs=20",
        "--log_file_max_size=1000000",
        "--max-fleet-size=100",
        "--hub-api-qps=250",
        "--hub-api-burst=1000",
        "--force-delete-wait-time=15m0s",
        "--cluster-unhealthy-threshold=3m0s",
        "--resource-snapshot-creation-minimum-interval=30s",
        "--resource-changes-collection-duration=15s",
    ];
    let warnings = parsed(&chart).unwrap().warnings();
    let about: Vec<&str> = warnings
        .iter()
        .map(|line| line.split(['=', ' ']).next().unwrap())
        .collect();
    assert_eq!(
        about,
        [
            "--enable-pprof",
            "--pprof-port",
            "--enable-webhook",
            "--webhook-client-connection-type",
            "--webhook-service-name",
            "--enable-guard-rail",
            "--whitelisted-users",
            "--concurrent-resource-change-syncs",
            "--max-fleet-size",
            "--resource-snapshot-creation-minimum-interval",
            "--resource-changes-collection-duration",
            "--v",
            "--log_file_max_size",
            "--add_dir_header",
        ]
    );
    assert!(
        warnings
            .iter()
            .all(|line| line.contains(" has no effect: "))
    );
}

#[test]
fn arguments_as_go_takes_them() {
    for args in [
        &["hub", "-v", "3"][..],
        &["-v=3"],
        &["hub", "-skipped-propagating-apis=apps"],
        &["hub", "--enable-webhook"],
        &["hub", "--hub-api-qps", "-1"],
        &["hub", "--hub-api-qps=-1"],
        &["hub", "--leader-elect", "--metrics-bind-address=:8080"],
        &["hub", "--enable-webhook=f", "--enable-webhook=T"],
        &["--enable-workload=false"],
    ] {
        assert!(parsed(args).is_ok(), "{args:?}: {:?}", parsed(args));
    }
    for args in [
        &["hub", "--max-fleet"][..],
        &["hub", "--enable-everything"],
        &["--enable-webhook=perhaps"],
        &["hub", "--pprof-port"],
        &["status", "--enable-webhook"],
        &["hub", "--cluster-unhealthy-threshold=0s"],
        &[
            "hub",
            "--skipped-propagating-apis=apps",
            "--allowed-propagating-apis=apps",
        ],
    ] {
        assert!(parsed(args).is_err(), "{args:?}");
    }
    let quiet = [
        "hub",
        "--enable-webhook=false",
        "--enable-pdbs",
        "--resource-changes-collection-duration=0",
    ];
    assert_eq!(parsed(&quiet).unwrap().warnings(), Vec::<String>::new());
    // What is so anyway is still known for a flag of ours.
    assert!(
        WithoutEffect::augment_args(clap::Command::new("x"))
            .get_arguments()
            .all(clap::Arg::is_hide_set)
    );
}

#[test]
fn only_the_hubs_arguments_are_touched() {
    let ours = |args: &[&str]| -> Vec<String> {
        let args = as_ours(args.iter().map(OsString::from));
        args.into_iter()
            .map(|arg| arg.into_string().unwrap())
            .collect()
    };
    assert_eq!(
        ours(&["w", "status", "-o", "json"]),
        ["w", "status", "-o", "json"]
    );
    assert_eq!(ours(&["w", "--help"]), ["w", "--help"]);
    assert_eq!(ours(&["w", "-V"]), ["w", "-V"]);
    assert_eq!(ours(&["w"]), ["w"]);
    assert_eq!(ours(&["w", "hub", "-h"]), ["w", "hub", "-h"]);
    assert_eq!(
        ours(&["w", "-v=2", "-1", "-"]),
        ["w", "hub", "--v=2", "-1", "-"]
    );
}
