//! Never two leaders: a simulation of contenders with clocks of their own rate, a server that compares and
//! swaps, and a network that delays and loses requests and answers. True time is in milliseconds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;

use super::*;
use crate::clock;

fn contender(identity: &str) -> Contender {
    Contender {
        namespace: "n".into(),
        name: "l".into(),
        identity: identity.into(),
        timing: Timing::default(),
    }
}

/// How a contender fares in one run.
#[derive(Clone, Debug)]
struct Life {
    /// Its clock's rate in thousandths.
    rate: u64,
    /// How far its wall clock is off.
    skew: i64,
    /// When it starts.
    starts: u64,
    /// When it is stopped (SIGSTOP), and for how long.
    pauses: Vec<(u64, u64)>,
    /// When it is killed, if it is.
    dies: Option<u64>,
}

fn life() -> impl Strategy<Value = Life> {
    (
        900..=1100u64,
        -100_000..100_000i64,
        0..5_000u64,
        prop::collection::vec((0..90_000u64, 1..25_000u64), 0..3),
        prop::option::of(5_000..90_000u64),
    )
        .prop_map(|(rate, skew, starts, pauses, dies)| Life {
            rate,
            skew,
            starts,
            pauses,
            dies,
        })
}

/// What the network does to a request: delay on the way there, on the way back, and what is lost.
#[derive(Clone, Copy, Debug)]
struct Weather {
    there: u64,
    back: u64,
    fate: u8,
}

fn weather() -> impl Strategy<Value = Weather> {
    // Mostly fair; sometimes slow enough for renewals to be given up and still done later.
    let delay = || prop_oneof![8 => 1..50u64, 2 => 50..3_000u64, 1 => 3_000..20_000u64];
    (delay(), delay(), 0..10u8).prop_map(|(there, back, fate)| Weather { there, back, fate })
}

#[derive(Clone, Debug)]
enum Request {
    Get,
    Write(Box<Lease>),
}

type Answer = Result<Option<Lease>, Failed>;

#[derive(Clone, Debug)]
enum Event {
    /// A contender goes on, unless it has been told something else meanwhile.
    Wake { who: usize, turn: u64 },
    /// A request is at the server.
    Arrives {
        who: usize,
        turn: u64,
        sent: u64,
        request: Request,
        weather: Weather,
    },
    /// An answer is back.
    Answers {
        who: usize,
        turn: u64,
        sent: u64,
        write: bool,
        answer: Box<Answer>,
    },
    /// A request is given up.
    GivesUp { who: usize, turn: u64, sent: u64 },
}

struct Node {
    life: Life,
    state: LeaseState,
    turn: u64,
    over: bool,
}

struct Sim {
    base: Instant,
    now: u64,
    nodes: Vec<Node>,
    server: Option<Lease>,
    version: u64,
    weather: Vec<Weather>,
    requests: usize,
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    events: Vec<Event>,
    /// Who has come to lead, in order.
    leaders: Vec<usize>,
}

/// From here on the network is fair.
const CALM: u64 = 100_000;
const END: u64 = 160_000;
/// When an attempt is given up: a third of the renew deadline.
const LIMIT: u64 = 7000 / 3;

impl Sim {
    fn new(lives: &[Life], weather: Vec<Weather>) -> Self {
        let mut sim = Self {
            base: clock::monotonic(),
            now: 0,
            nodes: Vec::new(),
            server: None,
            version: 0,
            weather,
            requests: 0,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            leaders: Vec::new(),
        };
        for (who, life) in lives.iter().enumerate() {
            sim.nodes.push(Node {
                life: life.clone(),
                state: LeaseState::new(contender(&format!("node-{who}"))),
                turn: 0,
                over: false,
            });
            sim.at(life.starts, Event::Wake { who, turn: 0 });
        }
        sim
    }

    fn at(&mut self, time: u64, event: Event) {
        self.queue.push(Reverse((time, self.events.len())));
        self.events.push(event);
    }

    fn local(&self, who: usize, time: u64) -> Instant {
        // An offset, so that clocks agree on nothing.
        let offset = Duration::from_secs(1000 * who as u64);
        self.base + offset + Duration::from_micros(time * self.nodes[who].life.rate)
    }

    /// When a moment of a contender's clock is, in true time.
    fn true_time(&self, who: usize, moment: Instant) -> u64 {
        let local = (moment - self.local(who, 0)).as_micros() as u64;
        local.div_ceil(self.nodes[who].life.rate)
    }

    /// When a contender is running next, from `time` on.
    fn running_at(&self, who: usize, mut time: u64) -> u64 {
        let mut pauses = self.nodes[who].life.pauses.clone();
        pauses.sort_unstable();
        for (from, length) in pauses {
            if time >= from && time < from + length {
                time = from + length;
            }
        }
        time
    }

    fn believes(&self, who: usize) -> bool {
        let alive = self.nodes[who].life.dies.is_none_or(|dies| self.now < dies);
        let now = self.local(who, self.now);
        alive
            && self.nodes[who]
                .state
                .leads_until()
                .is_some_and(|until| now < until)
    }

    fn run(&mut self) {
        while let Some(Reverse((time, index))) = self.queue.pop() {
            if time > END {
                return;
            }
            self.now = time;
            let event = self.events[index].clone();
            match &event {
                Event::Arrives {
                    who,
                    turn,
                    sent,
                    request,
                    weather,
                } => {
                    let (write, answer) = self.serve(request);
                    let lost = weather.fate == 1 && time < CALM;
                    if !lost {
                        let answers = Event::Answers {
                            who: *who,
                            turn: *turn,
                            sent: *sent,
                            write,
                            answer: Box::new(answer),
                        };
                        self.at(time + weather.back, answers);
                    }
                }
                Event::Wake { who, .. }
                | Event::Answers { who, .. }
                | Event::GivesUp { who, .. } => {
                    self.happens(*who, &event);
                }
            }
        }
    }

    /// Something happens to a contender, once it is running.
    fn happens(&mut self, who: usize, event: &Event) {
        let runs = self.running_at(who, self.now);
        if self.nodes[who].over
            || self.nodes[who]
                .life
                .dies
                .is_some_and(|dies| self.now >= dies)
        {
            return;
        }
        if runs > self.now {
            self.at(runs, event.clone());
            return;
        }
        let now = self.local(who, self.now);
        match event {
            Event::Wake { turn, .. } if *turn == self.nodes[who].turn => {}
            Event::GivesUp { turn, sent, .. } if *turn == self.nodes[who].turn => {
                let began = self.local(who, *sent);
                self.nodes[who].state.failed(Failed::Outage, began);
            }
            Event::Answers {
                turn,
                sent,
                write,
                answer,
                ..
            } if *turn == self.nodes[who].turn => {
                let sent = self.local(who, *sent);
                let state = &mut self.nodes[who].state;
                match &**answer {
                    Ok(Some(lease)) if *write => {
                        let led = state.leads_until().is_some();
                        state.wrote(lease.clone(), sent);
                        if !led {
                            self.leaders.push(who);
                        }
                        self.only_one_leads();
                    }
                    Ok(lease) => state.looked(lease.clone(), now),
                    Err(failed) => state.failed(*failed, sent),
                }
            }
            _ => return,
        }
        self.acts(who);
    }

    fn acts(&mut self, who: usize) {
        let now = self.local(who, self.now);
        let skew = self.nodes[who].life.skew;
        let at = Timestamp::from_millisecond(1_000_000_000 + self.now as i64 + skew).unwrap();
        self.nodes[who].turn += 1;
        let (turn, sent) = (self.nodes[who].turn, self.now);
        let request = match step(&self.nodes[who].state, now, at) {
            Step::Wait(until) => {
                let wakes = self.true_time(who, until).max(self.now + 1);
                return self.at(wakes, Event::Wake { who, turn });
            }
            Step::StepDown(_) => {
                // Its process starts anew, knowing nothing.
                let fresh = contender(&format!("node-{who}-{turn}"));
                self.nodes[who].state = LeaseState::new(fresh);
                return self.at(self.now + 500, Event::Wake { who, turn });
            }
            Step::Look => Request::Get,
            Step::Write(lease) => Request::Write(lease),
        };
        let weather = if self.now >= CALM {
            Weather {
                there: 5,
                back: 5,
                fate: 9,
            }
        } else {
            self.weather[self.requests % self.weather.len()]
        };
        self.requests += 1;
        if weather.fate != 0 {
            self.at(
                self.now + weather.there,
                Event::Arrives {
                    who,
                    turn,
                    sent,
                    request,
                    weather,
                },
            );
        }
        let gives_up = self.true_time(who, now + Duration::from_millis(LIMIT));
        self.at(gives_up, Event::GivesUp { who, turn, sent });
    }

    fn serve(&mut self, request: &Request) -> (bool, Answer) {
        let Request::Write(lease) = request else {
            return (false, Ok(self.server.clone()));
        };
        let live = self
            .server
            .as_ref()
            .and_then(|live| live.metadata.resource_version.clone());
        if live != lease.metadata.resource_version {
            return (true, Err(Failed::Raced));
        }
        self.version += 1;
        let mut stored = (**lease).clone();
        stored.metadata.resource_version = Some(self.version.to_string());
        self.server = Some(stored.clone());
        (true, Ok(Some(stored)))
    }

    fn only_one_leads(&self) {
        let leaders: Vec<usize> = (0..self.nodes.len())
            .filter(|who| self.believes(*who))
            .collect();
        assert!(
            leaders.len() <= 1,
            "at {} ms {leaders:?} believe to lead",
            self.now
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// A belief begins, or is prolonged, only as an answer comes: so it is enough to look then.
    #[test]
    fn never_two_lead_and_somebody_does_in_the_end(
        lives in prop::collection::vec(life(), 2..=3),
        weather in prop::collection::vec(weather(), 20..60),
    ) {
        let mut sim = Sim::new(&lives, weather);
        sim.run();
        sim.now = END;
        let alive = lives.iter().any(|life| life.dies.is_none());
        let leaders = (0..lives.len()).filter(|who| sim.believes(*who)).count();
        prop_assert_eq!(leaders, usize::from(alive), "in fair weather one leads");
    }
}

#[test]
fn the_simulation_hands_over() {
    let life = |dies| Life {
        rate: 1000,
        skew: 0,
        starts: 0,
        pauses: Vec::new(),
        dies,
    };
    let fair = vec![Weather {
        there: 5,
        back: 5,
        fate: 9,
    }];
    let mut sim = Sim::new(&[life(Some(20_000)), life(None)], fair);
    sim.run();
    assert_eq!(sim.leaders, [0, 1]);
    let taken = sim.server.and_then(|lease| lease.spec).unwrap();
    assert_eq!(taken.lease_transitions, Some(1));
}
