//! Labels, annotations and finalizers (API §5).

/// Name of the placement that an object belongs to.
pub const PARENT_PLACEMENT: &str = "kubernetes-fleet.io/parent-CRP";
/// `true` on the latest snapshot of a placement.
pub const IS_LATEST_SNAPSHOT: &str = "kubernetes-fleet.io/is-latest-snapshot";
/// Index of a policy snapshot.
pub const POLICY_INDEX: &str = "kubernetes-fleet.io/policy-index";
/// Index of a resource snapshot.
pub const RESOURCE_INDEX: &str = "kubernetes-fleet.io/resource-index";
/// Index of an override snapshot.
pub const OVERRIDE_INDEX: &str = "kubernetes-fleet.io/override-index";
/// Name of the override that a snapshot is of.
pub const PARENT_OVERRIDE: &str = "kubernetes-fleet.io/parent-resource-override";
/// A MemberCluster's own name.
pub const MEMBER_NAME: &str = "kubernetes-fleet.io/member-name";
/// Marks objects that the hub made for itself.
pub const IS_FLEET_RESOURCE: &str = "kubernetes-fleet.io/is-fleet-resource";
/// On a credentials Secret: the cluster that it opens.
pub const CREDENTIALS_CLUSTER: &str = "windlass.dev/cluster";
/// On every object that we apply to a member; watches on members are scoped to it.
pub const PLACED: &str = "windlass.dev/placed";
/// Value of [`PLACED`].
pub const PLACED_VALUE: &str = "true";

/// Placement generation that a policy snapshot is valid for.
pub const PLACEMENT_GENERATION: &str = "kubernetes-fleet.io/CRP-generation";
/// PickN's number, on the policy snapshot.
pub const NUMBER_OF_CLUSTERS: &str = "kubernetes-fleet.io/number-of-clusters";
/// Hash of all selected resources, on the master resource snapshot.
pub const RESOURCE_HASH: &str = "kubernetes-fleet.io/resource-hash";
/// How many snapshots make the group, on the master.
pub const NUMBER_OF_RESOURCE_SNAPSHOTS: &str = "kubernetes-fleet.io/number-of-resource-snapshots";
/// How many envelopes were selected, on the master.
pub const NUMBER_OF_ENVELOPED_OBJECT: &str = "kubernetes-fleet.io/number-of-enveloped-object";
/// Position of a part, on snapshots that are not the master.
pub const SUBINDEX: &str = "kubernetes-fleet.io/subindex-of-resource-snapshot";
/// State of a binding before it became Unscheduled.
pub const PREVIOUS_BINDING_STATE: &str = "kubernetes-fleet.io/previous-binding-state";
/// Hash of the manifest, on objects on the member.
pub const SPEC_HASH: &str = "kubernetes-fleet.io/spec-hash";
/// What was applied last, where a three-way merge was needed.
pub const LAST_APPLIED: &str = "kubernetes-fleet.io/last-applied-configuration";
/// How manifests reach a member: `push`; absent means pull (design §5.17).
pub const DELIVERY: &str = "windlass.dev/delivery";
/// Value of [`DELIVERY`] for push.
pub const DELIVERY_PUSH: &str = "push";
/// On a MemberCluster: the UID of the namespace kube-system there, by which a cluster is known under
/// whatever name.
pub const CLUSTER_UID: &str = "windlass.dev/cluster-uid";
/// On a MemberCluster: the mode of delivery that it changes to, `push` or `pull`.
pub const MIGRATE_TO: &str = "windlass.dev/migrate-to";
/// Value of [`MIGRATE_TO`] for pull.
pub const DELIVERY_PULL: &str = "pull";
/// On a Work: the generation at which the hub left its spec, and the digest of that, with a slash between.
pub const WRITTEN: &str = "windlass.dev/written";
/// Name of the binding that a Work is of.
pub const PARENT_BINDING: &str = "kubernetes-fleet.io/parent-resource-binding";
/// On a Work: index of the resource snapshot that it was last written for.
pub const PARENT_SNAPSHOT_INDEX: &str = "kubernetes-fleet.io/parent-resource-snapshot-index";
/// On the Work of a ResourcePlacement: that one's namespace.
pub const PARENT_NAMESPACE: &str = "kubernetes-fleet.io/parent-placement-namespace";
/// On the Work of an envelope: that one's kind.
pub const ENVELOPE_KIND: &str = "kubernetes-fleet.io/envelope-work";
/// On the Work of an envelope: that one's name.
pub const ENVELOPE_NAME: &str = "kubernetes-fleet.io/envelope-name";
/// On the Work of a ResourceEnvelope: that one's namespace.
pub const ENVELOPE_NAMESPACE: &str = "kubernetes-fleet.io/envelope-namespace";
/// On a Work, annotation: name of the resource snapshot that it was last written for.
pub const PARENT_SNAPSHOT_NAME: &str = "kubernetes-fleet.io/parent-resource-snapshot-name";
/// On a Work, annotation: hash of the ClusterResourceOverride snapshots that it was last written for.
pub const PARENT_CLUSTER_OVERRIDES_HASH: &str =
    "kubernetes-fleet.io/parent-cluster-resource-override-snapshot-hash";
/// On a Work, annotation: hash of the ResourceOverride snapshots that it was last written for.
pub const PARENT_OVERRIDES_HASH: &str =
    "kubernetes-fleet.io/parent-resource-override-snapshot-hash";
/// On a Namespace or CRD: it may be removed with what it holds (design §5.19).
pub const ALLOW_CASCADE: &str = "windlass.dev/allow-cascade";
/// On a binding: what its placement's deleteStrategy says, where that is not the default.
pub const DELETE_STRATEGY: &str = "windlass.dev/delete-strategy";
/// On a binding: SHA-256 of what the overrides that it names may do on its cluster now, or `none`.
pub const OVERRIDES_MAY: &str = "windlass.dev/overrides-may";
/// Value of [`DELETE_STRATEGY`].
pub const ABANDON: &str = "Abandon";
/// On a MemberCluster that is being deleted: placed objects are removed too.
pub const PURGE: &str = "windlass.dev/purge";
/// On a MemberCluster that is being deleted: it is not waited for while it can't be reached.
pub const FORCE_LEAVE: &str = "windlass.dev/force-leave";
/// On a MemberCluster that is being deleted: it answered, and is asked to take the hub's rights away. Who is
/// refused there from then on has none any more.
pub const RIGHTS_ASKED_BACK: &str = "windlass.dev/rights-asked-back";

/// Key of the taint of a cluster that is drained, as upstream's kubectl plugin has it (API §10.3).
pub const CORDON_KEY: &str = "cordon-key";
/// Its value.
pub const CORDON_VALUE: &str = "cordon-value";

/// On a placement: its snapshots and bindings are cleaned up first.
pub const PLACEMENT_FINALIZER: &str = "kubernetes-fleet.io/crp-cleanup";
/// On a placement, written by other implementations: its bindings are cleaned up first.
pub const SCHEDULER_FINALIZER: &str = "kubernetes-fleet.io/scheduler-cleanup";
/// On a binding, written by other implementations.
pub const SCHEDULER_BINDING_FINALIZER: &str = "kubernetes-fleet.io/scheduler-crb-cleanup";
/// On a binding: its objects on the member are removed first.
pub const WORK_FINALIZER: &str = "kubernetes-fleet.io/work-cleanup";
/// On a MemberCluster, written by other implementations: its ClusterProfile is removed first.
pub const PROFILE_FINALIZER: &str = "kubernetes-fleet.io/cluster-profile-cleanup";
/// On an override: its snapshots are cleaned up first.
pub const OVERRIDE_FINALIZER: &str = "kubernetes-fleet.io/override-cleanup";
/// On a MemberCluster: it leaves in order.
pub const MEMBER_FINALIZER: &str = "kubernetes-fleet.io/membercluster-finalizer";

/// On an approval request: name of the run that asks.
pub const TARGET_RUN: &str = "kubernetes-fleet.io/targetUpdateRun";
/// On an approval request: name of the stage that it is about.
pub const TARGET_STAGE: &str = "kubernetes-fleet.io/targetUpdatingStage";
/// On an approval request: `beforeStage` or `afterStage`.
pub const TASK_TYPE: &str = "kubernetes-fleet.io/taskType";
/// On an approval request: it is the run's present one for its stage; `true`.
pub const IS_LATEST_APPROVAL: &str = "kubernetes-fleet.io/isLatestUpdateRunApproval";
/// On an update run: its approval requests go before it does.
pub const RUN_FINALIZER: &str = "kubernetes-fleet.io/stagedupdaterun-finalizer";
/// On a binding: UID of the update run that moved it last.
pub const MOVED_BY_RUN: &str = "windlass.dev/update-run";
/// On what the hub makes of an Addon: the Addon's name.
pub const ADDON: &str = "addons.windlass.dev/addon";
/// On an envelope in a resource snapshot, annotation: it holds what the hub has rendered of an Addon, nothing
/// else. The value is the digest of that whole render's content. The hub puts it there as it selects, and takes it off
/// what others wrote.
pub const ADDON_VOUCHED: &str = "addons.windlass.dev/vouched";
/// On a resource snapshot's master, annotation: the Addons whose renders it holds, each as `name=digest`
/// with the value of [`ADDON_VOUCHED`], separated by commas.
pub const ADDON_RENDERS: &str = "addons.windlass.dev/renders";
/// On the envelopes of an Addon, annotation: digest of what their render depends on, the same on all
/// envelopes of one render.
pub const ADDON_RENDER: &str = "addons.windlass.dev/render";
/// On the envelopes of an Addon, annotation: how many envelopes that render has in all.
pub const ADDON_PARTS: &str = "addons.windlass.dev/parts";
/// On an AddonRepository: asks for a reading now; another value asks again.
pub const SYNC_REQUESTED_AT: &str = "windlass.dev/sync-requested-at";
/// On an AddonChart: name of its AddonRepository, if that fits.
pub const ADDON_REPOSITORY: &str = "addons.windlass.dev/repository";
