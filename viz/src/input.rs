//! Keys and mouse: one table says what each key does, in the footer, in the help and in fact.

use crate::app::{Action, View};
use crossterm::event::{
    Event as TerminalEvent, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind,
};

/// What a person or the clock tells the program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Input {
    /// A key of the table.
    Do(Action),
    /// A click or a drag with the button held.
    Point {
        /// Column.
        column: u16,
        /// Row.
        row: u16,
    },
    /// The wheel: up is negative.
    Wheel(i32),
    /// The window has another size.
    Resized,
    /// This much real time has passed, in seconds.
    Passed(f64),
}

/// One row of the key table.
#[derive(Debug)]
pub struct Binding {
    /// The keys.
    pub keys: &'static [KeyCode],
    /// How footer and help write them.
    pub label: &'static str,
    /// One or two words for the footer; empty if it is not shown there.
    pub short: &'static str,
    /// A sentence for the help.
    pub help: &'static str,
    /// What it does.
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

use KeyCode::{BackTab, Char, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Tab, Up};

/// The table.
pub const BINDINGS: &[Binding] = &[
    binding(&[Char(' ')], "space", "pause", "pause, and go on", Action::TogglePause),
    binding(
        &[Right, Char('.')],
        "→",
        "step",
        "one step forward: an event, collective, unit or step",
        Action::Forward,
    ),
    binding(&[Left, Char(',')], "←", "back", "one step back, as far as the past is kept", Action::Back),
    binding(&[Char('g')], "g", "by", "what one step is: event, collective, unit, step", Action::Granularity),
    binding(&[Char('-'), Char('[')], "-", "slow", "slower, down to 1/1000", Action::Slower),
    binding(&[Char('+'), Char('='), Char(']')], "+", "fast", "faster, up to real time", Action::Faster),
    binding(&[Enter, Char('r')], "enter", "", "release: full speed, at the latest event", Action::Release),
    binding(&[Tab], "tab", "view", "next view", Action::NextView),
    binding(&[BackTab], "shift-tab", "", "previous view", Action::PreviousView),
    binding(
        &[Char('1')],
        "1",
        "",
        "Overview: memory, collectives and progress of every rank",
        Action::Show(View::Overview),
    ),
    binding(
        &[Char('2')],
        "2",
        "",
        "Shards: which slice of each unit every rank holds",
        Action::Show(View::Shards),
    ),
    binding(
        &[Char('3')],
        "3",
        "",
        "Memory: one rank's memory over the last steps",
        Action::Show(View::Memory),
    ),
    binding(
        &[Char('4')],
        "4",
        "",
        "Streams: compute and communication on one time axis",
        Action::Show(View::Streams),
    ),
    binding(
        &[Char('5')],
        "5",
        "",
        "Traffic: bytes per operation and pair, against theory",
        Action::Show(View::Traffic),
    ),
    binding(
        &[Char('6')],
        "6",
        "",
        "Compare: runs side by side at the same step",
        Action::Show(View::Compare),
    ),
    binding(&[PageDown], "page down", "", "next step of the run", Action::NextStep),
    binding(&[PageUp], "page up", "", "previous step of the run", Action::PreviousStep),
    binding(&[Home], "home", "", "the beginning", Action::First),
    binding(&[End], "end", "", "the latest event", Action::Last),
    binding(&[Char('?'), Char('h')], "?", "help", "this list", Action::Help),
    binding(&[Char('q')], "q", "quit", "quit; a live run ends cleanly at once", Action::Quit),
    binding(&[Down, Char('j')], "↓", "rank", "next rank", Action::NextRank),
    binding(&[Up, Char('k')], "↑", "", "previous rank", Action::PreviousRank),
];

/// What a terminal's event means, if anything.
pub fn translate(event: &TerminalEvent) -> Option<Input> {
    match event {
        TerminalEvent::Key(key) if key.kind != KeyEventKind::Release => key_action(key).map(Input::Do),
        TerminalEvent::Mouse(mouse) => match mouse.kind {
            MouseEventKind::Down(MouseButton::Left) | MouseEventKind::Drag(MouseButton::Left) => {
                Some(Input::Point { column: mouse.column, row: mouse.row })
            }
            MouseEventKind::ScrollUp => Some(Input::Wheel(-1)),
            MouseEventKind::ScrollDown => Some(Input::Wheel(1)),
            _ => None,
        },
        TerminalEvent::Resize(..) => Some(Input::Resized),
        _ => None,
    }
}

fn key_action(key: &KeyEvent) -> Option<Action> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            Char('c') => Some(Action::Quit),
            Char('z') => Some(Action::Suspend),
            Char('l') => Some(Action::Redraw),
            _ => None,
        };
    }
    if key.code == Esc {
        return Some(Action::Dismiss);
    }
    BINDINGS.iter().find(|binding| binding.keys.contains(&key.code)).map(|binding| binding.action)
}
