//! What the program knows and how it changes: [`App::update`] takes an input and returns what to do outside. It reads
//! no clock, no terminal and no file, so the same inputs always lead to the same picture.

use crate::input::Input;
use crate::player::{Motion, Player};
use crate::view::frame::{self, Target};
use events::{Boundary, Control, Message};
use ratatui::layout::Rect;

/// The views, in the order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum View {
    /// Everything at a glance.
    Overview,
    /// Who holds what.
    Shards,
    /// One rank's memory over time.
    Memory,
    /// Compute and communication over time.
    Streams,
    /// Bytes sent.
    Traffic,
    /// Runs side by side.
    Compare,
}

impl View {
    /// All of them.
    pub const ALL: [View; 6] =
        [View::Overview, View::Shards, View::Memory, View::Streams, View::Traffic, View::Compare];

    /// Its name.
    pub const fn label(self) -> &'static str {
        match self {
            View::Overview => "Overview",
            View::Shards => "Shards",
            View::Memory => "Memory",
            View::Streams => "Streams",
            View::Traffic => "Traffic",
            View::Compare => "Compare",
        }
    }

    fn turned(self, by: usize) -> View {
        View::ALL[(self as usize + by) % View::ALL.len()]
    }
}

/// What keys do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the key table says what each does")]
pub enum Action {
    TogglePause,
    Forward,
    Back,
    Granularity,
    Slower,
    Faster,
    Release,
    NextView,
    PreviousView,
    Show(View),
    NextRank,
    PreviousRank,
    NextStep,
    PreviousStep,
    First,
    Last,
    Help,
    Dismiss,
    Suspend,
    Redraw,
    Quit,
}

/// Where the events come from, and with it what one may do to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A run in this process: pausing really holds it.
    Live,
    /// A run in another process.
    Attached {
        /// Whether it may be held.
        control: bool,
    },
    /// A file.
    Recording,
}

/// What to do outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Hold the run, or let it go on.
    Control(Control),
    /// Leave the screen, stop the process, come back when it is continued.
    Suspend,
    /// Forget what the terminal shows and draw everything anew.
    Redraw,
    /// End.
    Quit,
}

/// The speeds, run seconds per real second.
const SPEEDS: [f64; 10] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];

/// Everything that the screen shows.
pub struct App {
    /// The runs: one, or up to four beside each other, of which the first leads.
    pub players: Vec<Player>,
    /// Where they come from.
    pub source: Source,
    /// The view shown.
    pub view: View,
    /// The rank that single-rank views show.
    pub rank: usize,
    /// What one step is.
    pub granularity: Boundary,
    /// Whether the list of keys is shown.
    pub help: bool,
    /// Whether the run's end has been looked at and put aside.
    pub dismissed: bool,
    /// Whether a live run is held.
    pub held: bool,
    /// A live run's pace: run seconds per real second, 1 is free.
    pub pace: f64,
    /// The screen's size, which decides what a click means.
    pub area: Rect,
}

impl App {
    /// Shows `players`, of which there must be at least one.
    pub fn new(players: Vec<Player>, source: Source) -> Self {
        let view = if players.len() > 1 { View::Compare } else { View::Overview };
        let mut app = App {
            players,
            source,
            view,
            rank: 0,
            granularity: Boundary::Unit,
            help: false,
            dismissed: false,
            held: false,
            pace: 1.0,
            area: Rect::default(),
        };
        app.lock();
        app
    }

    /// The run that leads.
    pub fn player(&self) -> &Player {
        &self.players[0]
    }

    fn lead(&mut self) -> &mut Player {
        &mut self.players[0]
    }

    /// Whether the run is over and its end is shown.
    pub fn at_close(&self) -> bool {
        self.player().timeline().ended() && self.player().at_end()
    }

    /// Takes messages of a live run.
    pub fn receive(&mut self, messages: Vec<Message>) -> bool {
        let any = !messages.is_empty();
        messages.into_iter().for_each(|message| self.lead().push(message));
        any
    }

    /// Takes one input. Returns what to do outside.
    pub fn update(&mut self, input: Input) -> Option<Effect> {
        match input {
            Input::Do(action) => self.act(action),
            Input::Point { column, row } => {
                self.point(column, row);
                None
            }
            Input::Wheel(by) => self.act(if by > 0 { Action::NextRank } else { Action::PreviousRank }),
            Input::Resized => None,
            Input::Passed(seconds) => {
                if self.lead().tick(seconds) {
                    self.lock();
                }
                None
            }
        }
    }

    fn act(&mut self, action: Action) -> Option<Effect> {
        match action {
            Action::Quit => return Some(Effect::Quit),
            Action::Suspend => return Some(Effect::Suspend),
            Action::Redraw => return Some(Effect::Redraw),
            Action::Help => self.help = !self.help,
            Action::Dismiss => (self.help, self.dismissed) = (false, true),
            Action::NextView => self.view = self.view.turned(1),
            Action::PreviousView => self.view = self.view.turned(View::ALL.len() - 1),
            Action::Show(view) => self.view = view,
            Action::NextRank => self.rank = (self.rank + 1).min(self.ranks().saturating_sub(1)),
            Action::PreviousRank => self.rank = self.rank.saturating_sub(1),
            Action::Granularity => self.granularity = next_granularity(self.granularity),
            moving => return self.travel(moving),
        }
        None
    }

    fn ranks(&self) -> usize {
        self.player().scene().now.ranks.len()
    }

    fn travel(&mut self, action: Action) -> Option<Effect> {
        let effect = match action {
            Action::TogglePause => self.toggle_pause(),
            Action::Forward => self.forward(),
            Action::Back => {
                let granularity = self.granularity;
                self.stand(|player| player.step_back(granularity))
            }
            Action::NextStep => self.stand(|player| player.step_forward(Boundary::Step)),
            Action::PreviousStep => self.stand(|player| player.step_back(Boundary::Step)),
            Action::First => self.stand(|player| player.seek(player.timeline().beginning())),
            Action::Last => self.stand(|player| player.seek(player.timeline().len())),
            Action::Slower => self.change_speed(-1),
            Action::Faster => self.change_speed(1),
            Action::Release => self.release(),
            _ => None,
        };
        self.lock();
        effect
    }

    /// Whether the run itself may be held.
    pub fn may_hold(&self) -> bool {
        let alive = !self.player().timeline().ended();
        alive && matches!(self.source, Source::Live | Source::Attached { control: true })
    }

    fn hold(&mut self) -> Option<Effect> {
        if self.held || !self.may_hold() {
            return None;
        }
        self.held = true;
        Some(Effect::Control(Control::Pause))
    }

    /// Moves by hand: whatever moved by itself stops first.
    fn stand(&mut self, change: impl FnOnce(&mut Player)) -> Option<Effect> {
        let effect = self.hold();
        self.lead().set_motion(Motion::Standing);
        change(self.lead());
        effect
    }

    fn toggle_pause(&mut self) -> Option<Effect> {
        let standing = self.lead().motion() == Motion::Standing;
        match self.source {
            Source::Recording => {
                self.lead().set_motion(if standing { Motion::Playing } else { Motion::Standing });
                None
            }
            _ if standing || self.held => self.go_on(),
            _ => self.stand(|_| ()),
        }
    }

    fn go_on(&mut self) -> Option<Effect> {
        self.lead().set_motion(Motion::Following);
        let was_held = std::mem::replace(&mut self.held, false);
        let control = if self.pace < 1.0 { Control::Slow(self.pace) } else { Control::Resume };
        (was_held && self.may_hold()).then_some(Effect::Control(control))
    }

    fn release(&mut self) -> Option<Effect> {
        self.pace = 1.0;
        if self.source == Source::Recording {
            self.lead().set_speed(1.0);
            self.lead().set_motion(Motion::Playing);
            return None;
        }
        self.held = false;
        self.lead().set_motion(Motion::Following);
        self.may_hold().then_some(Effect::Control(Control::Resume))
    }

    fn forward(&mut self) -> Option<Effect> {
        let granularity = self.granularity;
        if self.source == Source::Recording || !self.lead().at_end() {
            return self.stand(|player| player.step_forward(granularity));
        }
        // At the latest event, the run itself goes on by a step and the picture follows.
        self.lead().set_motion(Motion::Following);
        self.held = self.may_hold();
        self.held.then_some(Effect::Control(Control::Step(granularity)))
    }

    fn change_speed(&mut self, by: isize) -> Option<Effect> {
        let current = if self.source == Source::Recording { self.lead().speed() } else { self.pace };
        let index = SPEEDS.iter().position(|&speed| speed >= current * 0.999).unwrap_or(SPEEDS.len() - 1);
        let speed = SPEEDS[index.saturating_add_signed(by).min(SPEEDS.len() - 1)];
        if self.source == Source::Recording {
            self.lead().set_speed(speed);
            return None;
        }
        self.pace = if self.may_hold() { speed } else { 1.0 };
        let control = if speed < 1.0 { Control::Slow(speed) } else { Control::Resume };
        (self.may_hold() && !self.held).then_some(Effect::Control(control))
    }

    fn point(&mut self, column: u16, row: u16) {
        match frame::target(self, column, row) {
            Some(Target::Tab(view)) => self.view = view,
            Some(Target::Seek(fraction)) if self.source == Source::Recording => {
                self.stand(|player| player.seek_fraction(fraction));
                self.lock();
            }
            Some(Target::Help) => self.help = !self.help,
            _ => {}
        }
    }

    /// Brings the other runs to the leading one's step and phase.
    pub fn lock(&mut self) {
        if let Some((lead, others)) = self.players.split_first_mut() {
            others.iter_mut().for_each(|player| player.lock_to(lead));
        }
    }
}

fn next_granularity(granularity: Boundary) -> Boundary {
    match granularity {
        Boundary::Event => Boundary::Collective,
        Boundary::Collective => Boundary::Unit,
        Boundary::Unit => Boundary::Step,
        Boundary::Step => Boundary::Event,
    }
}
