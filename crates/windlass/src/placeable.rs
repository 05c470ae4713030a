//! What may be placed: the same flags for whoever decides and for whoever asks what would be decided.

use windlass_hub::{ApiFilter, Confinement};

use crate::cli::{self, Failure};

#[derive(clap::Args)]
pub struct Placeable {
    /// Kinds that are not placed, beside those that never are: group, group/version, group/version/Kind,Kind
    /// or v1/Kind, separated by semicolons.
    #[arg(
        long,
        env = "WINDLASS_SKIPPED_PROPAGATING_APIS",
        default_value = "",
        hide_default_value = true,
        conflicts_with = "allowed_propagating_apis"
    )]
    skipped_propagating_apis: String,
    /// The only kinds that are placed, written the same way.
    #[arg(
        long,
        env = "WINDLASS_ALLOWED_PROPAGATING_APIS",
        default_value = "",
        hide_default_value = true
    )]
    allowed_propagating_apis: String,
    /// Namespaces that are not placed, beside the reserved ones, separated by commas or semicolons.
    #[arg(
        long,
        env = "WINDLASS_SKIPPED_PROPAGATING_NAMESPACES",
        default_value = "",
        hide_default_value = true
    )]
    skipped_propagating_namespaces: String,
    /// What ResourcePlacements and namespaced overrides may do beside what they always may: rbac (place Roles
    /// and RoleBindings, change who has which rights), pod-security (change what Pods may do on their node),
    /// separated by commas.
    #[arg(
        long,
        env = "WINDLASS_ALLOWED_IN_NAMESPACED_PLACEMENTS",
        default_value = "",
        hide_default_value = true
    )]
    allowed_in_namespaced_placements: String,
    /// The hub's cluster runs workloads of its own: its PersistentVolumeClaims are then not placed.
    #[arg(long, alias = "enable-custom-workload", env = "WINDLASS_ENABLE_WORKLOAD", default_value = "false",
        action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_parser = cli::yes)]
    enable_workload: bool,
}

impl Placeable {
    /// What the flags say.
    pub fn filter(&self) -> Result<ApiFilter, Failure> {
        let filter = ApiFilter::new(
            &self.skipped_propagating_apis,
            &self.allowed_propagating_apis,
        )
        .map_err(windlass_hub::HubError::from)?;
        Ok(filter
            .reserving(&self.skipped_propagating_namespaces)
            .with_hub_workloads(self.enable_workload)
            .confining(Confinement::new(&self.allowed_in_namespaced_placements)?))
    }
}
