//! Keys and mouse. The footer, the list of keys and the program all read the same table,
//! [`BINDINGS`].

use crossterm::event::{
    Event as TerminalEvent, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind,
};

/// The views, in the order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum View {
    /// Memory, collectives and progress of all ranks.
    Overview,
    /// The slices of each unit that every rank holds.
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

events::labels! {
    View {
        Overview => "Overview",
        Shards => "Shards",
        Memory => "Memory",
        Streams => "Streams",
        Traffic => "Traffic",
        Compare => "Compare",
    }
}

impl View {
    /// Returns the view `by` places after this one, the first after the last.
    pub(crate) fn turned(self, by: usize) -> View {
        View::ALL[(self as usize + by) % View::ALL.len()]
    }
}

/// An action that a person asks for, by key or mouse.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs, reason = "the table of keys says what each does")]
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
    /// Selects this rank.
    SelectRank(usize),
    /// Lists ranks by number, or the slowest first.
    Order,
    /// Shows the next page of units of a list that does not fit; after the last page, the units in
    /// use.
    NextUnits,
    /// Shows the next of several runs in the views of one run.
    NextRun,
    NextStep,
    PreviousStep,
    First,
    Last,
    /// Moves to the next skipped step, or to the failure; recordings only.
    NextProblem,
    /// Moves to this share of the run's time; recordings only.
    Seek(f64),
    /// Opens the prompt for the number of a step or of a rank.
    GoToStep,
    Help,
    Dismiss,
    Suspend,
    Redraw,
    Quit,
    /// Ends a live run that the screen has asked about.
    EndRun,
    /// Leaves the screen and lets the live run continue.
    Detach,
    Interrupt,
}

impl Action {
    /// True if the action selects the item under the mouse, so that dragging may repeat it.
    pub(crate) fn is_choice(self) -> bool {
        matches!(self, Action::Show(_) | Action::SelectRank(_) | Action::Seek(_))
    }
}

/// A key that a person has pressed while a prompt is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keystroke {
    /// Adds this character.
    Character(char),
    /// Removes the last character.
    Erase,
    /// Accepts what is typed.
    Enter,
    /// Closes the prompt.
    Close,
}

/// An input to the program, from a person or from the clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Input {
    /// A person has pressed a key of this action, or clicked on it.
    Action(Action),
    /// A person has pressed a key in a prompt.
    Key(Keystroke),
    /// A turn of the mouse wheel. Up is negative.
    Wheel(i32),
    /// The terminal's size has changed.
    Resized,
    /// This many seconds of real time have passed.
    Tick(f64),
}

/// One row of the table of keys. Two opposite keys share the label of the first; the other's label
/// is empty.
#[derive(Debug)]
pub struct Binding {
    /// The keys.
    pub keys: &'static [KeyCode],
    /// Their names in the footer and in the list of keys.
    pub label: &'static str,
    /// One or two words for the footer; empty if the footer does not show the keys.
    pub short: &'static str,
    /// The description in the list of keys.
    pub help: &'static str,
    /// The action.
    pub action: Action,
}

const fn binding(
    keys: &'static [KeyCode],
    label: &'static str,
    short: &'static str,
    help: &'static str,
    action: Action,
) -> Binding {
    Binding { keys, label, short, help, action }
}

/// Returns a binding for the opposite of the binding before it.
const fn counterpart(keys: &'static [KeyCode], action: Action) -> Binding {
    binding(keys, "", "", "", action)
}

const fn view(keys: &'static [KeyCode], label: &'static str, help: &'static str, view: View) -> Binding {
    binding(keys, label, "", help, Action::Show(view))
}

use KeyCode::{
    BackTab, Backspace, Char, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Tab, Up,
};

/// The table of keys.
pub const BINDINGS: &[Binding] = &[
    binding(&[Char(' ')], "space", "pause", "pause or resume", Action::TogglePause),
    binding(
        &[Left, Char(','), Char('h')],
        "←→",
        "step",
        "one step back or forward; also h l , .",
        Action::Back,
    ),
    counterpart(&[Right, Char('.'), Char('l')], Action::Forward),
    binding(&[Char('g')], "g", "by", "size of a step: event, collective, unit or step", Action::Granularity),
    binding(
        &[Char('-'), Char('[')],
        "-+",
        "speed",
        "slower or faster (also [ ] =); a recording up to ×100",
        Action::Slower,
    ),
    counterpart(&[Char('+'), Char('='), Char(']')], Action::Faster),
    binding(&[Char('f')], "f", "problem", "next failure or skipped step of a recording", Action::NextProblem),
    binding(
        &[Enter, Char('r')],
        "enter, r",
        "",
        "resume in real time; a live run at its latest event",
        Action::Release,
    ),
    binding(
        &[Tab],
        "tab",
        "view",
        "next view, with shift the previous; ctrl-l draws again",
        Action::NextView,
    ),
    counterpart(&[BackTab], Action::PreviousView),
    binding(
        &[Up, Char('k')],
        "↑↓",
        "rank",
        "previous or next rank; also k j, the wheel",
        Action::PreviousRank,
    ),
    counterpart(&[Down, Char('j')], Action::NextRank),
    binding(&[Char('u')], "u", "", "next units of a long list, then those in use again", Action::NextUnits),
    binding(&[Char('o')], "o", "", "order in lists: ranks by number, or the slowest first", Action::Order),
    view(&[Char('1')], "1", "Overview: memory, collectives and progress of every rank", View::Overview),
    view(&[Char('2')], "2", "Shards: which slice of each unit every rank holds", View::Shards),
    view(&[Char('3')], "3", "Memory: one rank's memory over the last steps", View::Memory),
    view(&[Char('4')], "4", "Streams: compute and communication on one time axis", View::Streams),
    view(&[Char('5')], "5", "Traffic: bytes per operation and pair, against theory", View::Traffic),
    view(&[Char('6')], "6", "Compare: runs side by side at the same step", View::Compare),
    binding(&[Char('n')], "n", "run", "next of the runs compared, in the views of one run", Action::NextRun),
    binding(&[PageUp], "page up, down", "", "previous or next step of the run", Action::PreviousStep),
    counterpart(&[PageDown], Action::NextStep),
    binding(&[Char(':')], ":", "", "go to step 12 or rank 3: type 12 or r3, then enter", Action::GoToStep),
    binding(&[Home], "home, end", "", "the oldest event kept; the latest, and follow the run", Action::First),
    counterpart(&[End], Action::Last),
    binding(
        &[Char('?')],
        "?",
        "help",
        "this list; click views, keys, ranks, a recording's bar",
        Action::Help,
    ),
    binding(
        &[Char('q')],
        "q",
        "quit",
        "quit (a live run asks first); esc or q closes this list",
        Action::Quit,
    ),
];

/// The keys that answer the question whether to end a live run, in the form of [`BINDINGS`].
pub const ANSWERS: &[Binding] = &[
    binding(&[Char('y')], "y", "end", "end the run: whole steps count, results are saved", Action::EndRun),
    binding(&[Char('d')], "d", "detach", "detach: it continues, even without this terminal", Action::Detach),
    binding(&[Esc], "esc", "stay", "stay here", Action::Dismiss),
];

/// Returns the column and row of a click, or of a drag with the left button held; `None` for other
/// events.
pub fn clicked(event: &TerminalEvent) -> Option<(u16, u16)> {
    let TerminalEvent::Mouse(mouse) = event else { return None };
    let (MouseEventKind::Down(button) | MouseEventKind::Drag(button)) = mouse.kind else { return None };
    (button == MouseButton::Left).then_some((mouse.column, mouse.row))
}

/// True if the mouse was moved with the left button held.
pub fn is_drag(event: &TerminalEvent) -> bool {
    let TerminalEvent::Mouse(mouse) = event else { return false };
    mouse.kind == MouseEventKind::Drag(MouseButton::Left)
}

/// Translates a terminal event into an input; `None` if it has no effect. Keys are text while a
/// prompt is open. Clicks depend on the picture: see [`clicked`]. Pasted text has no effect.
pub fn translate(event: &TerminalEvent, prompting: bool) -> Option<Input> {
    match event {
        TerminalEvent::Key(key) if key.kind != KeyEventKind::Release => {
            let typed = if prompting { keystroke(key) } else { None };
            typed.map(Input::Key).or_else(|| key_action(key).map(Input::Action))
        }
        TerminalEvent::Mouse(mouse) => match mouse.kind {
            MouseEventKind::ScrollUp => Some(Input::Wheel(-1)),
            MouseEventKind::ScrollDown => Some(Input::Wheel(1)),
            _ => None,
        },
        TerminalEvent::Resize(..) => Some(Input::Resized),
        _ => None,
    }
}

fn keystroke(key: &KeyEvent) -> Option<Keystroke> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return None;
    }
    match key.code {
        Char(typed) => Some(Keystroke::Character(typed)),
        Backspace => Some(Keystroke::Erase),
        Enter => Some(Keystroke::Enter),
        Esc => Some(Keystroke::Close),
        _ => None,
    }
}

fn key_action(key: &KeyEvent) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            Char('c') => Some(Action::Interrupt),
            Char('z') => Some(Action::Suspend),
            Char('l') => Some(Action::Redraw),
            _ => None,
        };
    }
    let mut bindings = BINDINGS.iter().chain(ANSWERS);
    bindings.find(|binding| binding.keys.contains(&key.code)).map(|binding| binding.action)
}
