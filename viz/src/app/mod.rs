//! What the program knows and how it changes: [`App::update`] takes an input and returns what to do outside. It reads
//! no clock, no terminal and no file, so the same inputs always lead to the same picture.

mod travel;

use crate::input::{Action, Input, View};
use crate::player::{Motion, Player};
use events::{Boundary, Control, Message};

/// Where the events come from, and with it what one may do to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSource {
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

/// Everything that the screen shows.
pub struct App {
    /// The runs: one, or up to four beside each other, of which the first leads.
    pub players: Vec<Player>,
    /// Where they come from; recordings may stand behind runs that go on.
    pub source: EventSource,
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
}

impl App {
    /// Shows `players`, of which there must be at least one.
    pub fn new(players: Vec<Player>, source: EventSource) -> Self {
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

    /// Takes messages of live runs, in the players' order. Returns whether there were any.
    pub fn receive(&mut self, messages: Vec<Vec<Message>>) -> bool {
        let any = messages.iter().any(|messages| !messages.is_empty());
        for (player, messages) in self.players.iter_mut().zip(messages) {
            messages.into_iter().for_each(|message| player.push(message));
        }
        if any && self.players.len() > 1 {
            self.lock();
        }
        any
    }

    /// Takes one input. Returns what to do outside.
    pub fn update(&mut self, input: Input) -> Option<Effect> {
        match input {
            Input::Do(action) => self.act(action),
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
            Action::Granularity => self.granularity = travel::next_granularity(self.granularity),
            moving => return self.travel(moving),
        }
        None
    }

    fn ranks(&self) -> usize {
        self.player().scene().now.ranks.len()
    }

    /// Brings the other runs to the leading one's step and phase. Runs that are followed wait for the slowest of them, and
    /// recordings beside them go along.
    pub fn lock(&mut self) {
        if self.players.len() < 2 {
            return;
        }
        let leader = if self.player().motion() == Motion::Following { self.slowest() } else { 0 };
        let (before, rest) = self.players.split_at_mut(leader);
        let Some((lead, after)) = rest.split_first_mut() else { return };
        if lead.motion() == Motion::Following {
            lead.seek(lead.timeline().len());
        }
        before.iter_mut().chain(after).for_each(|player| player.lock_to(lead));
    }

    /// The run that has come least far, of those that are followed and go on.
    fn slowest(&self) -> usize {
        let followed = |(_, player): &(usize, &Player)| player.motion() == Motion::Following;
        let players = || self.players.iter().enumerate().filter(followed);
        let going = players().filter(|(_, player)| !player.timeline().ended());
        let least = |(_, player): &(usize, &Player)| player.latest_phase();
        going.min_by_key(least).or_else(|| players().min_by_key(least)).map_or(0, |(number, _)| number)
    }
}
