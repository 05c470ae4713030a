//! Addons on a real fleet: charts packed by the real Helm, rendered by it, and what a user sees of them on the hub
//! and on two members.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that can't go on fails, and one that measures has a clock"
)]

mod bed;
mod bounds;
mod deaths;
mod demo;
mod outage;
mod pull;
mod trouble;
mod versions;

use bed::Bed;

#[test]
fn addons_live_on_a_real_fleet() {
    let mut bed = Bed::up();
    trouble::endless_begins(&bed);
    demo::a_chart_of_helm_create_is_placed(&bed);
    demo::a_tenant_may_place_no_roles(&bed);
    demo::changes_roll_within_the_strategy(&bed);
    versions::policies_decide_about_newer_versions(&bed);
    versions::random_values_roll_nothing_by_themselves(&mut bed);
    trouble::bad_values_leave_what_runs(&bed);
    trouble::endless_ends(&bed);
    bounds::a_placement_of_the_users_own(&bed);
    bounds::what_is_not_its_own_is_left_alone(&bed);
    bounds::edited_envelopes_are_restored(&bed);
    pull::an_agent_gets_it_too(&bed);
    outage::a_stale_catalogue_disturbs_nothing(&bed);
    demo::nothing_moves_without_a_reason(&mut bed);
    outage::deletion_needs_no_repository(&bed);
    trouble::without_helm_it_says_so(&mut bed);
    deaths::no_death_mixes_two_renders(&mut bed);
}
