//! Names of derived objects (API §5.4).

/// Where the hub keeps its credentials and lease.
pub const HUB_NAMESPACE: &str = "fleet-system";

/// Longest name that fits a DNS label and a label value.
const LABEL_LIMIT: usize = 63;

/// Longest name of an object.
const OBJECT_LIMIT: usize = 253;

/// Name of a policy snapshot.
#[must_use]
pub fn policy_snapshot(placement: &str, index: u64) -> String {
    format!("{placement}-{index}")
}

/// Name of the master resource snapshot of a group.
#[must_use]
pub fn master_snapshot(placement: &str, index: u64) -> String {
    format!("{placement}-{index}-snapshot")
}

/// Name of a further part of a resource snapshot group; `sub` starts at 0.
#[must_use]
pub fn sub_snapshot(placement: &str, index: u64, sub: u64) -> String {
    format!("{placement}-{index}-{sub}")
}

/// Name of a snapshot of an override.
#[must_use]
pub fn override_snapshot(of: &str, index: u64) -> String {
    format!("{of}-{index}")
}

/// Name of a binding: placement cut to 26, cluster to 27 characters, and `suffix`, 8 characters that
/// make it unique. The suffix is derived from the full names, so that a second create of the same
/// binding meets the first.
#[must_use]
pub fn binding(placement: &str, cluster: &str, suffix: &str) -> String {
    let name = format!("{}-{}-{suffix}", cut(placement, 26), cut(cluster, 27));
    debug_assert!(name.len() <= LABEL_LIMIT);
    name
}

/// Name of the eviction by which a drain takes a placement off a cluster: `drain-eviction-`, both names, and
/// `unique`, 8 hexadecimal digits that follow from what is evicted, so that a second drain goes on with it.
#[must_use]
pub fn drain_eviction(placement: &str, cluster: &str, unique: &str) -> String {
    let rest = "drain-eviction---".len() + cluster.len() + unique.len();
    let placement = cut(placement, OBJECT_LIMIT.saturating_sub(rest));
    format!("drain-eviction-{placement}-{cluster}-{unique}")
}

/// Namespace on the hub that belongs to a member cluster.
#[must_use]
pub fn member_namespace(cluster: &str) -> String {
    format!("fleet-member-{cluster}")
}

/// Name of the Work, and of the AppliedWork on the member, of a placement; of a cluster-scoped one the
/// namespace is empty. ClusterResourcePlacement `ns.x` and ResourcePlacement `ns/x` have the same one: whose
/// it is, its labels say, and the other takes [`hashed`].
#[must_use]
pub fn work(namespace: &str, placement: &str) -> String {
    format!("{}-work", work_base(namespace, placement))
}

/// What names of Works begin with: `placement`, or `namespace.placement`.
#[must_use]
pub fn work_base(namespace: &str, placement: &str) -> String {
    if namespace.is_empty() {
        placement.to_owned()
    } else {
        format!("{namespace}.{placement}")
    }
}

/// Name of a Work, or AppliedWork, of which the usual name is another placement's. `unique` is 8 hexadecimal
/// digits that follow from namespace and name of the placement. No usual name ends like this (those end in
/// `-work`, in a number, or in the 16 digits of an envelope), so none can take it.
#[must_use]
pub fn hashed(usual: &str, unique: &str) -> String {
    format!("{usual}-h{unique}")
}

/// The usual name behind one of [`hashed`].
#[must_use]
pub fn unhashed(name: &str) -> Option<&str> {
    let (usual, end) = name.rsplit_once('-')?;
    let digits = end.strip_prefix('h')?;
    (digits.len() == 8 && digits.chars().all(|c| c.is_ascii_hexdigit())).then_some(usual)
}

/// Name of the Work, or AppliedWork, of a part of a resource snapshot: 0 is the master's.
#[must_use]
pub fn part_work(base: &str, part: usize) -> String {
    match part {
        0 => format!("{base}-work"),
        further => format!("{base}-{}", further - 1),
    }
}

/// Name of the Work of an envelope in a part. `hash`: 16 hexadecimal digits over kind, namespace and name
/// of the envelope.
#[must_use]
pub fn envelope_work(part_work: &str, hash: &str) -> String {
    format!("{part_work}-envelope-{hash}")
}

/// Name of the Role of a member's agent, in the member's namespace.
#[must_use]
pub fn member_role(cluster: &str) -> String {
    format!("fleet-role-{cluster}")
}

/// Name of its RoleBinding.
#[must_use]
pub fn member_role_binding(cluster: &str) -> String {
    format!("fleet-rolebinding-{cluster}")
}

/// Name of the RoleBinding that lets a member's agent past the guard rails in its namespace.
#[must_use]
pub fn member_bypass(cluster: &str) -> String {
    format!("fleet-guard-rails-{cluster}")
}

/// The cluster that a namespace on the hub belongs to.
#[must_use]
pub fn cluster_of_namespace(namespace: &str) -> Option<&str> {
    namespace.strip_prefix("fleet-member-")
}

/// Name of the Secret that holds the credentials of a member cluster.
#[must_use]
pub fn credentials_secret(cluster: &str) -> String {
    format!("windlass-cluster-{cluster}")
}

/// Whether a namespace is reserved: never selected, never a placement's (API §7.2, design §5.18).
#[must_use]
pub fn is_reserved_namespace(name: &str) -> bool {
    name == "default"
        || ["kube-", "fleet-", "windlass-"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

fn cut(text: &str, length: usize) -> &str {
    // Object names are ASCII; a character boundary is looked for all the same.
    let mut end = length.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].trim_end_matches(['-', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_to_a_label() {
        let name = binding(&"p".repeat(63), &"c".repeat(63), "12345678");
        assert_eq!(name.len(), 26 + 1 + 27 + 1 + 8);
        assert_eq!(binding("web", "east", "12345678"), "web-east-12345678");
    }

    #[test]
    fn the_eviction_of_a_drain_can_be_made() {
        let name = drain_eviction("web", "east", "12345678");
        assert_eq!(name, "drain-eviction-web-east-12345678");
        let long = drain_eviction(&"p".repeat(253), &"c".repeat(63), "12345678");
        assert_eq!(long.len(), 253);
        assert!(long.ends_with("-12345678"));
    }

    #[test]
    fn no_placement_can_be_called_so_that_it_takes_a_hashed_name() {
        for base in [
            "x",
            "x-0123abcd",
            "x-work",
            "x-h01234567",
            "x-work-h01234567",
        ] {
            for usual in [
                work("ns", base),
                work("", base),
                part_work(&work_base("ns", base), 1_234_568),
                envelope_work(&work("ns", base), "0123456701234567"),
            ] {
                assert_eq!(unhashed(&usual), None, "{usual}");
                assert_eq!(unhashed(&hashed(&usual, "01234567")), Some(usual.as_str()));
            }
        }
    }

    #[test]
    fn reserved_namespaces() {
        for name in [
            "default",
            "kube-system",
            "fleet-system",
            "fleet-member-a",
            "windlass-x",
        ] {
            assert!(is_reserved_namespace(name), "{name}");
        }
        for name in ["web", "defaults", "kubernetes", "fleets"] {
            assert!(!is_reserved_namespace(name), "{name}");
        }
    }
}
