//! The state of the program. [`App::update`] applies an input and returns the effect that the
//! caller must carry out. It reads no clock, no terminal and no file, so the same inputs always
//! lead to the same picture.

mod prompt;
mod travel;

use crate::input::{Action, Input, View};
use crate::player::{Motion, Player};
use crate::ranking::RankOrder;
use crate::timeline::FollowState;
use events::{Boundary, Control, Message, RecordingError};
pub use prompt::Prompt;
use signal_hook::consts::SIGINT;

/// Seconds without growth after which a recording that may still grow counts as quiet.
const QUIET: f64 = 10.0;

/// Where the events come from, which decides whether the run can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// A run in this process. Pausing holds its ranks.
    Live,
    /// A run in another process.
    Attached {
        /// Whether this screen may hold it.
        control: bool,
    },
    /// A recording.
    Recording,
}

/// An action outside the program's state, for the caller to carry out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// Send this request to the run.
    Control(Control),
    /// Leave the screen, stop the process, and take the screen again when the process continues.
    Suspend,
    /// Clear the terminal and draw the whole picture again.
    Redraw,
    /// Leave the screen.
    Leave(Departure),
}

/// How a person leaves the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// By a key.
    Quit,
    /// By a signal with this number, or by the key that sends it.
    Signal(i32),
    /// By detaching: the run of this process continues without the screen.
    Detached,
}

/// The state of everything that the screen shows.
pub struct App {
    /// The runs: one, or up to four side by side. The others follow the first.
    pub players: Vec<Player>,
    /// Where the first run's events come from. If recordings are compared with live runs, the live
    /// runs come first.
    pub source: EventSource,
    /// The view shown.
    pub view: View,
    /// The run that views of one run show, by its place in `players`.
    pub shown: usize,
    /// The rank that single-rank views show.
    pub rank: usize,
    /// The order of ranks in lists.
    pub order: RankOrder,
    /// How often the person has asked for the next units of a long list: see [`Self::page`].
    pub unit_turns: usize,
    /// The size of one step.
    pub granularity: Boundary,
    /// Whether the list of keys is shown.
    pub help: bool,
    /// The prompt for the number of a step or of a rank; `None` if it is closed.
    pub prompt: Option<Prompt>,
    /// Whether the screen asks if the run should end or continue.
    pub confirming_quit: bool,
    /// Whether the box over a finished or failed run has been dismissed. The same key shows it
    /// again.
    pub dismissed: bool,
    /// Whether the live run is held, by this screen or by another viewer.
    pub held: bool,
    /// A live run's pace: run seconds per real second. At 1 it runs freely.
    pub pace: f64,
    /// Seconds since the followed recording last grew.
    pub quiet: f64,
}

impl App {
    /// Returns the state that shows `players`. There must be at least one.
    pub fn new(players: Vec<Player>, source: EventSource) -> Self {
        let view = if players.len() > 1 { View::Compare } else { View::Overview };
        let mut app = App {
            players,
            source,
            view,
            shown: 0,
            rank: 0,
            order: RankOrder::default(),
            unit_turns: 0,
            granularity: Boundary::Unit,
            help: false,
            prompt: None,
            confirming_quit: false,
            dismissed: false,
            held: false,
            pace: 1.0,
            quiet: 0.0,
        };
        app.sync_runs();
        app
    }

    /// Returns the run that views of one run show.
    pub fn player(&self) -> &Player {
        &self.players[self.shown.min(self.players.len() - 1)]
    }

    /// Returns the first run, which the others follow.
    pub fn lead(&self) -> &Player {
        &self.players[0]
    }

    fn lead_mut(&mut self) -> &mut Player {
        &mut self.players[0]
    }

    /// True if another run has the stage of `player`, so that its title tells them apart.
    pub fn shares_stage(&self, player: &Player) -> bool {
        let stage = |player: &Player| player.scene().header.stage.clone();
        self.players.iter().filter(|other| stage(other) == stage(player)).count() > 1
    }

    /// Returns the part of a run's name that tells it apart: its title if another run has the same
    /// stage, else its stage.
    pub fn short_name(&self, player: &Player) -> String {
        let title = &player.timeline().title;
        let told_apart = self.shares_stage(player) && !title.is_empty();
        if told_apart { title.clone() } else { player.scene().header.stage.clone() }
    }

    /// Returns which of `pages` pages of units is chosen; `None` if the page follows the run.
    pub fn page(&self, pages: usize) -> Option<usize> {
        (self.unit_turns % (pages + 1)).checked_sub(1)
    }

    /// True if the run is over and the position is at its end.
    pub fn at_end_of_run(&self) -> bool {
        self.lead().timeline().ended() && self.lead().at_end()
    }

    /// True if the picture is that of a run that has ended or failed.
    fn has_ended(&self) -> bool {
        self.at_end_of_run() || self.player().scene().now.failure.is_some()
    }

    /// True if the box over a run that has ended or failed is shown.
    pub fn shows_ending(&self) -> bool {
        let alone = self.players.len() == 1 && self.source != EventSource::Recording;
        let failed = self.player().scene().now.failure.is_some();
        !self.dismissed && (failed || alone && self.at_end_of_run())
    }

    /// Returns the seconds since a recording that may still grow last grew; `None` until it counts
    /// as quiet. A run writes several times a second, so a quiet recording is worth a warning.
    pub fn quiet_seconds(&self) -> Option<u64> {
        let grows = self.lead().timeline().follow_state() == FollowState::Growing;
        (grows && self.quiet >= QUIET).then_some(self.quiet as u64)
    }

    /// Applies messages of live runs, in the players' order. Returns true if there were any.
    pub fn receive(&mut self, messages: Vec<Vec<Message>>) -> bool {
        let any = messages.iter().any(|messages| !messages.is_empty());
        messages.iter().take(1).flatten().for_each(|message| self.note_pace(message));
        for (player, messages) in self.players.iter_mut().zip(messages) {
            messages.into_iter().for_each(|message| player.push(message));
        }
        if any && self.players.len() > 1 {
            self.sync_runs();
        }
        // A run that has ended needs no question whether to end it.
        self.confirming_quit &= !self.lead().timeline().ended();
        any
    }

    /// Adds the bytes by which the recording's file has grown.
    ///
    /// # Errors
    /// [`RecordingError`] if they are unreadable.
    pub fn grow(&mut self, bytes: &[u8]) -> Result<(), RecordingError> {
        self.quiet = 0.0;
        self.lead_mut().grow(bytes)
    }

    /// Applies one input. Returns the effect that the caller must carry out; `None` if there is
    /// none.
    pub fn update(&mut self, input: Input) -> Option<Effect> {
        match input {
            Input::Action(action) => self.act(action),
            Input::Wheel(by) => self.act(if by > 0 { Action::NextRank } else { Action::PreviousRank }),
            Input::Key(key) => {
                self.type_into_prompt(key);
                None
            }
            Input::Resized => None,
            Input::Tick(seconds) => {
                self.quiet += seconds;
                if self.lead_mut().tick(seconds) {
                    self.sync_runs();
                }
                None
            }
        }
    }

    fn act(&mut self, action: Action) -> Option<Effect> {
        match action {
            Action::Interrupt => return Some(Effect::Leave(Departure::Signal(SIGINT))),
            Action::Suspend => return Some(Effect::Suspend),
            Action::Redraw => return Some(Effect::Redraw),
            Action::EndRun | Action::Detach | Action::Dismiss if self.confirming_quit => {
                return self.answer(action);
            }
            // While the question is open, all other keys are ignored.
            _ if self.confirming_quit => {}
            Action::Quit if self.help => self.help = false,
            Action::Quit => return self.quit(),
            Action::Help => self.help = !self.help,
            Action::GoToStep => (self.help, self.prompt) = (false, Some(Prompt::default())),
            Action::Dismiss if self.help => self.help = false,
            // Pressed before there is a box, the key must not dismiss a later one.
            Action::Dismiss => self.dismissed ^= self.has_ended(),
            Action::NextView => self.show(self.view.turned(1)),
            Action::PreviousView => self.show(self.view.turned(View::ALL.len() - 1)),
            Action::Show(view) => self.show(view),
            Action::NextRun => self.shown = (self.shown + 1) % self.players.len(),
            Action::NextRank => self.move_rank(1),
            Action::PreviousRank => self.move_rank(-1),
            Action::SelectRank(rank) => self.rank = rank,
            Action::Order => self.change_order(),
            Action::NextUnits => self.unit_turns += 1,
            Action::Granularity => {
                self.granularity = Boundary::ALL[(self.granularity.index() + 1) % Boundary::ALL.len()];
            }
            moving => return self.travel(moving),
        }
        None
    }

    /// Shows `view`, without the box over a run that has ended.
    fn show(&mut self, view: View) {
        self.view = view;
        self.dismissed |= self.shows_ending();
    }

    /// Leaves the screen. If that would end a run of this process, asks first.
    fn quit(&mut self) -> Option<Effect> {
        self.confirming_quit = self.source == EventSource::Live && !self.lead().timeline().ended();
        (!self.confirming_quit).then_some(Effect::Leave(Departure::Quit))
    }

    fn answer(&mut self, action: Action) -> Option<Effect> {
        self.confirming_quit = false;
        match action {
            Action::EndRun => Some(Effect::Leave(Departure::Quit)),
            Action::Detach => Some(Effect::Leave(Departure::Detached)),
            _ => None,
        }
    }

    /// Selects the rank `by` places further down the list.
    fn move_rank(&mut self, by: isize) {
        let ranks = self.order.ranks(self.player().scene());
        let place = ranks.iter().position(|&rank| rank == self.rank).unwrap_or(0);
        let place = place.saturating_add_signed(by).min(ranks.len().saturating_sub(1));
        self.rank = ranks.get(place).copied().unwrap_or(0);
    }

    /// Changes the order of ranks. The slowest rank is selected when it comes first.
    fn change_order(&mut self) {
        self.order = self.order.other();
        if self.order == RankOrder::Slowest {
            self.rank = self.order.ranks(self.player().scene()).first().copied().unwrap_or(0);
        }
    }

    /// Moves the other runs to the step and phase of the first. If live runs are followed, all runs
    /// move to the position of the slowest live run instead.
    pub fn sync_runs(&mut self) {
        if self.players.len() < 2 {
            return;
        }
        let leader = if self.lead().motion() == Motion::Following { self.slowest() } else { 0 };
        let (before, rest) = self.players.split_at_mut(leader);
        let Some((lead, after)) = rest.split_first_mut() else { return };
        if lead.motion() == Motion::Following {
            lead.seek(lead.timeline().len());
        }
        before.iter_mut().chain(after).for_each(|player| player.sync_to(lead));
    }

    /// Returns the index of the followed run that has advanced least. Runs that have ended count
    /// only if all followed runs have; 0 if none is followed.
    fn slowest(&self) -> usize {
        let followed = |(_, player): &(usize, &Player)| player.motion() == Motion::Following;
        let players = || self.players.iter().enumerate().filter(followed);
        let going = players().filter(|(_, player)| !player.timeline().ended());
        let least = |(_, player): &(usize, &Player)| player.latest_phase();
        going.min_by_key(least).or_else(|| players().min_by_key(least)).map_or(0, |(number, _)| number)
    }
}
