//! A fleet, what may happen to it, and what must not come of that.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use windlass_api::binding::BindingState::{self, Bound, Scheduled, Unscheduled};
use windlass_api::binding::BindingStatus;
use windlass_api::conditions::{Stage, Status};
use windlass_rollout::Readiness::{
    Failed, InProgress, Ready, ReadyAt, Refused, Unreachable, Withheld,
};
use windlass_rollout::{Readiness, RollingPlan, RollingView, RolloutBinding, plan_rolling};
use windlass_status::processing::{Contact, Facts, has_timed_out, running_since, tell};
use windlass_status::{Digest, NewCondition};

/// How many kinds of events there are.
pub const KINDS: u8 = 22;

/// What comes of a version where it is applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quality {
    Good,
    Untrackable,
    Stuck,
    Bad,
    /// An override can't be worked in on the members of odd number; on the others it is good.
    Patchy,
    /// It can't be placed anywhere, until the hub is told otherwise.
    Unplaceable,
}

/// What a member does with a version.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Takes(Quality),
    /// Its override can't be worked in: nothing is sent.
    Refuses,
    /// Nothing is sent to anybody.
    Withholds,
}

/// What the status of a binding tells of what was there before, if anything (see `ready::left`).
#[derive(Clone, Copy, Debug, PartialEq)]
enum Said {
    Nothing,
    /// Available, when the binding had been changed so often.
    Available(usize),
    Unavailable,
}

#[derive(Clone, Debug)]
pub struct Member {
    name: String,
    /// Whether it is connected.
    up: bool,
    /// Since when the hub takes it for reachable; none while it does not.
    known_up: Option<Timestamp>,
    /// When the hub last heard of it.
    heard: Timestamp,
    /// Whether the resources serve there, whatever anyone knows.
    serving: bool,
    /// They don't because of an update or removal of ours.
    disturbed: bool,
    /// What it is to get can't be said yet.
    waits: bool,
}

#[derive(Clone, Debug)]
pub struct Binding {
    pub name: String,
    pub member: usize,
    state: BindingState,
    deleting: bool,
    was_bound: bool,
    version: usize,
    /// Last report; what is shown while the member is reachable.
    pub report: Readiness,
    /// With its processing clock, and whether that took too long.
    status: BindingStatus,
    /// Told to the member yet; waits while it isn't reachable.
    delivered: bool,
    /// How often it was changed.
    changes: usize,
    said: Said,
}

impl Binding {
    /// Of what it asks for.
    fn digest(&self) -> Digest {
        Digest::of_bytes(&self.changes.to_le_bytes())
    }

    /// Whether that took too long.
    fn is_late(&self) -> bool {
        running_since(&self.status, self.digest()).is_some() && has_timed_out(&self.status)
    }
}

#[derive(Clone, Debug)]
pub struct World {
    pub now: Timestamp,
    pub members: Vec<Member>,
    pub bindings: Vec<Binding>,
    pub versions: Vec<Quality>,
    wanted: usize,
    max_unavailable: usize,
    timeout: Option<SignedDuration>,
    /// How often was planned.
    pub steps: usize,
    max_surge: usize,
    serial: usize,
    /// The clusters never changed, so that every disturbed one counts against the budget.
    in_place: bool,
}

impl World {
    pub fn new(size: usize, wanted: usize, max_unavailable: usize, max_surge: usize) -> Self {
        let mut world = World {
            now: Timestamp::UNIX_EPOCH,
            members: (0..size)
                .map(|i| Member {
                    name: format!("m{i:02}"),
                    up: true,
                    known_up: Some(Timestamp::UNIX_EPOCH),
                    heard: Timestamp::UNIX_EPOCH,
                    serving: false,
                    disturbed: false,
                    waits: false,
                })
                .collect(),
            bindings: Vec::new(),
            versions: vec![Quality::Good],
            wanted,
            max_unavailable,
            timeout: None,
            steps: 0,
            max_surge,
            serial: 0,
            in_place: true,
        };
        for member in 0..wanted {
            world.schedule(member);
        }
        world
    }

    /// How long a cluster that answers may take.
    pub fn with_timeout(mut self, timeout: Option<SignedDuration>) -> Self {
        self.timeout = timeout;
        self
    }

    fn latest(&self) -> usize {
        self.versions.len() - 1
    }

    fn schedule(&mut self, member: usize) {
        self.serial += 1;
        self.bindings.push(Binding {
            name: format!("b{:03}", self.serial),
            member,
            state: Scheduled,
            deleting: false,
            was_bound: false,
            version: 0,
            report: InProgress,
            status: BindingStatus::default(),
            delivered: false,
            changes: 0,
            said: Said::Nothing,
        });
    }

    fn answer(&self, binding: &Binding) -> Answer {
        match self.versions[binding.version] {
            Quality::Patchy if binding.member % 2 == 1 => Answer::Refuses,
            Quality::Patchy => Answer::Takes(Quality::Good),
            Quality::Unplaceable => Answer::Withholds,
            other => Answer::Takes(other),
        }
    }

    fn readiness(&self, binding: &Binding) -> Readiness {
        if self.members[binding.member].known_up.is_none() {
            return Unreachable;
        }
        match binding.report {
            InProgress if binding.is_late() => Failed,
            other => other,
        }
    }

    /// The hub looks at a binding, and at its clock.
    fn look(&mut self, index: usize) {
        let answer = self.answer(&self.bindings[index]);
        let binding = &mut self.bindings[index];
        let member = &mut self.members[binding.member];
        // What is refused, and what goes, is not waited for.
        let under_way = binding.state != Scheduled
            && !binding.deleting
            && matches!(answer, Answer::Takes(_))
            && !matches!(binding.report, Withheld | Refused);
        if member.known_up.is_none() {
            return;
        }
        if member.up {
            member.heard = self.now;
        }
        if self.timeout.is_none() || !under_way && binding.status.processing_since.is_none() {
            return;
        }
        let status = match binding.report {
            Ready | ReadyAt(_) => Status::True,
            _ => Status::False,
        };
        let condition = |stage: Stage, status| NewCondition {
            type_: stage.as_str(),
            status,
            reason: "Because",
            message: String::new(),
            observed_generation: None,
        };
        let chain = [Stage::Applied, Stage::Available];
        let mut told = BindingStatus {
            conditions: Some(vec![
                condition(Stage::Applied, Status::True).build(&[], self.now),
                condition(Stage::Available, status).build(&[], self.now),
            ]),
            ..BindingStatus::default()
        };
        let facts = Facts {
            previous: &binding.status,
            digest: under_way.then(|| binding.digest()),
            chain: &chain,
            timeout: self.timeout,
            contact: Contact {
                reachable_since: member.known_up,
                heard: Some(member.heard),
            },
            generation: None,
            now: self.now,
        };
        tell(&mut told, &facts);
        binding.status = told;
    }

    /// The hub notices who is gone and who is back.
    pub fn notice(&mut self) {
        for member in &mut self.members {
            member.known_up = match (member.up, member.known_up) {
                (false, _) => None,
                (true, None) => Some(self.now),
                (true, since) => since,
            };
        }
    }

    /// Connects a member, or cuts it off.
    pub fn connect(&mut self, member: usize, up: bool) {
        self.members[member].up = up;
        if up {
            for index in 0..self.bindings.len() {
                if self.bindings[index].member == member {
                    self.deliver(index);
                }
            }
        }
    }

    /// Time passes.
    pub fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// The hub looks at every binding.
    pub fn look_at_all(&mut self) {
        for index in 0..self.bindings.len() {
            self.look(index);
        }
    }

    pub fn plan(&self) -> RollingPlan {
        let bindings: Vec<_> = self
            .bindings
            .iter()
            .map(|b| RolloutBinding {
                name: &b.name,
                cluster: &self.members[b.member].name,
                state: b.state.clone(),
                deleting: b.deleting,
                on_target: !self.members[b.member].waits
                    && b.state == Bound
                    && b.version == self.latest(),
                settings_only: false,
                waits: self.members[b.member].waits,
                readiness: self.readiness(b),
                previously_bound: b.state == Unscheduled && b.was_bound,
            })
            .collect();
        let number = |n: usize| IntOrString::Int(i32::try_from(n).unwrap_or(i32::MAX));
        let view = RollingView {
            bindings: &bindings,
            target: self.wanted,
            max_unavailable: Some(&number(self.max_unavailable)),
            max_surge: Some(&number(self.max_surge)),
        };
        plan_rolling(&view, self.now)
    }

    fn is_ready(&self, binding: &Binding) -> bool {
        match self.readiness(binding) {
            Ready => true,
            ReadyAt(at) => at <= self.now,
            Unreachable => false,
            _ => self.serves_on(binding),
        }
    }

    /// Nothing was sent there, and what it had before is known to serve.
    fn serves_on(&self, binding: &Binding) -> bool {
        self.answer(binding) == Answer::Withholds
            && binding.said == Said::Available(binding.changes)
    }

    /// Members that refused what they were to get and never had anything: not reckoned with.
    fn refused(&self) -> usize {
        let leaving = |b: &Binding| {
            let mut same = self.bindings.iter().filter(|o| o.member == b.member);
            same.any(|other| other.deleting)
        };
        let refused = self.bindings.iter().filter(|b| {
            b.state == Bound && !b.deleting && self.readiness(b) == Refused && !leaving(b)
        });
        let members: BTreeSet<_> = refused.map(|b| b.member).collect();
        for member in &members {
            assert!(!self.members[*member].disturbed, "{self:?}");
        }
        members.len()
    }

    /// Members known to serve, by the test's own account.
    fn available(&self) -> BTreeSet<usize> {
        let leaving: BTreeSet<_> = self
            .bindings
            .iter()
            .filter(|b| b.deleting)
            .map(|b| b.member)
            .collect();
        self.bindings
            .iter()
            .filter(|b| !b.deleting && b.was_bound && self.is_ready(b))
            .map(|b| b.member)
            .filter(|m| !leaving.contains(m))
            .collect()
    }

    /// Bindings that carry or may carry the resources and can be counted on to matter.
    fn loads(&self) -> usize {
        let counts = |b: &&Binding| {
            let going = b.deleting || b.state == Unscheduled;
            b.was_bound
                && match self.readiness(b) {
                    Failed | Refused => false,
                    Unreachable => !going,
                    _ => true,
                }
        };
        self.bindings.iter().filter(counts).count()
    }

    /// The member learns what is wanted of it.
    fn deliver(&mut self, index: usize) {
        let answer = self.answer(&self.bindings[index]);
        let binding = &mut self.bindings[index];
        let member = &mut self.members[binding.member];
        if binding.delivered || !member.up {
            return;
        }
        binding.delivered = true;
        let sent = binding.deleting || matches!(answer, Answer::Takes(_));
        if sent && member.serving {
            member.serving = false;
            member.disturbed = true;
        }
    }

    /// Plans, checks and acts.
    pub fn step(&mut self) -> RollingPlan {
        self.steps += 1;
        let plan = self.plan();
        let available = self.available();
        let loads = self.loads();
        let mut disturbed = BTreeSet::new();
        let (latest, reachable): (usize, Vec<bool>) =
            (self.latest(), self.members.iter().map(|m| m.up).collect());
        let mut deliver = Vec::new();
        for (index, b) in self.bindings.iter_mut().enumerate() {
            let (update, bind, remove) = (
                plan.update.contains(&b.name),
                plan.bind.contains(&b.name),
                plan.remove.contains(&b.name),
            );
            if update || remove {
                disturbed.insert(b.member);
            }
            if update || bind {
                assert!(!b.deleting && b.state == if update { Bound } else { Scheduled });
                assert!(!self.members[b.member].waits, "{plan:?}");
                b.state = Bound;
                b.was_bound = true;
                b.version = latest;
                b.report = InProgress;
                b.delivered = false;
                b.changes += 1;
            }
            if remove {
                assert!(b.state == Unscheduled && !b.deleting);
                b.deleting = true;
                b.delivered = !b.was_bound;
            }
            if (update || bind || remove) && reachable[b.member] {
                deliver.push(index);
            }
        }
        for index in deliver {
            self.deliver(index);
        }
        let lost = available.intersection(&disturbed).count();
        let wanted = self.wanted.saturating_sub(self.refused());
        let floor = wanted.saturating_sub(self.max_unavailable);
        assert!(
            lost == 0 || available.len() - lost >= floor,
            "I1: {plan:?} in {self:?}"
        );
        if !plan.bind.is_empty() {
            let limit = self.wanted + self.max_surge;
            assert!(
                self.loads() <= limit.max(loads),
                "surge: {plan:?} in {self:?}"
            );
        }
        if self.in_place {
            let ours = self.members.iter().filter(|m| m.disturbed).count();
            assert!(
                ours <= self.max_unavailable,
                "I1 in place: {plan:?} in {self:?}"
            );
        }
        plan
    }

    /// A step, and no second one: the first spends the whole budget.
    pub fn settle(&mut self) -> RollingPlan {
        self.look_at_all();
        let first = self.step();
        let again = self.step();
        let RollingPlan {
            update,
            bind,
            remove,
            ..
        } = &again;
        assert!(
            update.is_empty() && bind.is_empty() && remove.is_empty(),
            "{again:?} in {self:?}"
        );
        first
    }

    /// The member reports on what it was told, or the hub on what it could not tell it.
    pub fn report(&mut self, index: usize) {
        let b = &self.bindings[index];
        if b.state == Scheduled || b.deleting || !b.delivered || !self.members[b.member].up {
            return;
        }
        match self.answer(b) {
            Answer::Takes(quality) => self.turns_out(index, quality),
            Answer::Refuses => self.refuse(index, Ready, Refused),
            Answer::Withholds => self.refuse(index, Withheld, Failed),
        }
    }

    fn turns_out(&mut self, index: usize, quality: Quality) {
        let b = &mut self.bindings[index];
        let member = &mut self.members[b.member];
        b.report = match quality {
            Quality::Good => Ready,
            Quality::Untrackable => ReadyAt(self.now + SignedDuration::from_secs(60)),
            Quality::Bad => Failed,
            _ => InProgress,
        };
        member.serving = matches!(quality, Quality::Good | Quality::Untrackable);
        member.disturbed &= !member.serving;
        b.said = if member.serving {
            Said::Available(b.changes)
        } else {
            Said::Unavailable
        };
    }

    /// Nothing was sent. What is said depends on what is known to be there.
    fn refuse(&mut self, index: usize, serving: Readiness, nothing: Readiness) {
        let b = &mut self.bindings[index];
        (b.said, b.report) = match b.said {
            Said::Available(when) if b.changes - when <= 1 => (Said::Available(b.changes), serving),
            Said::Available(_) | Said::Unavailable => (Said::Unavailable, Failed),
            Said::Nothing => (Said::Nothing, nothing),
        };
    }

    /// Of its own accord something happens to what runs; nobody looks where nothing was sent.
    fn suffer(&mut self, index: usize, quality: Quality) {
        let b = &self.bindings[index];
        let watched = matches!(self.answer(b), Answer::Takes(_));
        let told = b.state != Scheduled && !b.deleting && b.delivered;
        if watched && told && self.members[b.member].up {
            self.turns_out(index, quality);
        }
    }

    /// The hub is told to place what it could not, without a word to the bindings.
    fn allow(&mut self, version: usize, quality: Quality) {
        if self.versions[version] != Quality::Unplaceable {
            return;
        }
        self.versions[version] = quality;
        for index in 0..self.bindings.len() {
            let b = &mut self.bindings[index];
            if b.version == version && b.state != Scheduled && !b.deleting {
                b.delivered = false;
                b.report = InProgress;
                self.deliver(index);
            }
        }
    }

    /// The finalizer of a binding that is being deleted goes.
    pub fn finish(&mut self, index: usize) {
        let (member, deleting) = (self.bindings[index].member, self.bindings[index].deleting);
        if deleting && self.members[member].up {
            self.deliver(index);
            self.members[member].serving = false;
            self.members[member].disturbed = false;
            self.bindings.remove(index);
        }
    }

    /// Another member takes the place of one.
    pub fn swap(&mut self, index: usize, member: usize) {
        let free = self
            .bindings
            .iter()
            .all(|b| b.member != member || b.deleting);
        let b = &mut self.bindings[index];
        if free && !b.deleting && b.state != Unscheduled {
            b.state = Unscheduled;
            self.in_place = false;
            self.schedule(member);
        }
    }

    pub fn happen(&mut self, kind: u8, index: usize) {
        let size = self.members.len();
        let pick = index % self.bindings.len();
        match kind {
            0..=5 => self.report(pick),
            6 => {
                self.connect(index % size, false);
                self.notice();
            }
            7 | 8 => {
                self.connect(index % size, true);
                self.notice();
            }
            9 => self.versions.push(match index % 9 {
                0..=2 => Quality::Good,
                3 => Quality::Untrackable,
                4 => Quality::Stuck,
                5 => Quality::Bad,
                6 | 7 => Quality::Patchy,
                _ => Quality::Unplaceable,
            }),
            // Of its own accord.
            10 => self.suffer(
                pick,
                if index.is_multiple_of(2) {
                    Quality::Stuck
                } else {
                    Quality::Bad
                },
            ),
            11 | 12 => self.finish(pick),
            13 => self.pass(40),
            14 => self.allow(
                index % self.versions.len(),
                if index.is_multiple_of(2) {
                    Quality::Good
                } else {
                    Quality::Stuck
                },
            ),
            15 => self.members[index % size].waits ^= true,
            // Half of the fleet is cut off, or connected, and nobody has noticed yet.
            16 | 17 => {
                for member in (index % 2..size).step_by(2) {
                    self.connect(member, kind == 17);
                }
            }
            18 => self.notice(),
            19 => self.pass(200),
            // The hub was not there to see how it became connected.
            20 => self.connect(index % size, true),
            _ => {
                if self.wanted < size {
                    self.swap(pick, index % size);
                }
            }
        }
    }

    /// From now on all goes well: everything is reachable and the wanted version works. What old
    /// versions left behind stays as it is.
    pub fn heal(&mut self) {
        for i in 0..self.members.len() {
            self.connect(i, true);
            self.members[i].waits = false;
        }
        self.notice();
        if self.latest() == 0 || self.versions[self.latest()] != Quality::Good {
            self.versions.push(Quality::Good);
        }
        for i in 0..self.bindings.len() {
            self.deliver(i);
        }
        for _ in 0..20 * self.bindings.len() + 20 {
            self.settle();
            self.pass(61);
            for i in (0..self.bindings.len()).rev() {
                if self.bindings[i].version == self.latest() {
                    self.report(i);
                }
                self.finish(i);
            }
        }
    }

    pub fn is_done(&self) -> bool {
        self.bindings.len() == self.wanted
            && self.bindings.iter().all(|b| {
                b.state == Bound && b.version == self.latest() && b.report == Ready && !b.deleting
            })
    }
}
