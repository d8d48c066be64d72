//! Colours and glyphs: a palette that colour-blind people can tell apart, and its substitutes on
//! terminals with fewer colours, without colours or without Unicode.

mod reduce;

use events::{Class, Operation, Pass};
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

/// The number of colours that a terminal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Depth {
    /// 24 bits.
    Truecolor,
    /// The 256-colour cube.
    #[value(name = "256")]
    Indexed,
    /// The 16 named colours.
    #[value(name = "16")]
    Named,
    /// No colours: bold, reverse and glyphs only.
    #[value(name = "never")]
    None,
}

/// The colours and symbols that a terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// Its number of colours.
    pub depth: Depth,
    /// True if it shows ASCII only.
    pub ascii: bool,
}

/// Secondary text: labels, units.
pub const DIM: Color = Color::Rgb(0x8b, 0x93, 0xa1);
/// Lines and empty places.
pub const FAINT: Color = Color::Rgb(0x56, 0x5d, 0x6b);
/// Headings and the selection.
pub const ACCENT: Color = Color::Rgb(0x7a, 0xb8, 0xff);
/// Errors and deviations.
pub const ALARM: Color = Color::Rgb(0xff, 0x6b, 0x5e);
/// Values that meet their prediction.
pub const GOOD: Color = Color::Rgb(0x4f, 0xc3, 0x9a);
/// Ranks that wait.
pub const WAITING: Color = Color::Rgb(0xb0, 0x8a, 0x4a);
/// Background of a bar's last cell, as dark as the lightly filled rest of the bar looks.
pub const GHOST: Color = Color::Rgb(0x22, 0x26, 0x30);
/// Background of the selection.
pub const SLATE: Color = Color::Rgb(0x2a, 0x35, 0x47);
/// Text on a coloured background.
pub const INK: Color = Color::Rgb(0x10, 0x14, 0x1c);

impl Theme {
    /// All colours and symbols.
    pub const FULL: Theme = Theme { depth: Depth::Truecolor, ascii: false };

    /// Returns the theme that the environment variables imply.
    pub fn detect() -> Self {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let depth = if !variable("NO_COLOR").is_empty() {
            Depth::None
        } else if matches!(variable("COLORTERM").as_str(), "truecolor" | "24bit") {
            Depth::Truecolor
        } else if variable("TERM").contains("256") {
            Depth::Indexed
        } else {
            Depth::Named
        };
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(variable).into_iter().find(|value| !value.is_empty());
        let locale = locale.unwrap_or_default().to_lowercase();
        let ascii = !(locale.contains("utf-8") || locale.contains("utf8"));
        Theme { depth, ascii: ascii || variable("TERM") == "linux" }
    }

    /// True if areas are filled with colour. Otherwise glyphs fill them.
    pub fn colours(self) -> bool {
        self.depth != Depth::None
    }

    /// Converts a picture drawn for [`Theme::FULL`] to the terminal's colours and symbols.
    pub fn adapt(self, buffer: &mut Buffer) {
        if self == Theme::FULL {
            return;
        }
        for cell in &mut buffer.content {
            cell.fg = self.colour(cell.fg);
            cell.bg = self.colour(cell.bg);
            if self.ascii && !cell.symbol().is_ascii() {
                let plain: String = cell.symbol().chars().map(reduce::plain).collect();
                cell.set_symbol(&plain);
            }
        }
    }

    fn colour(self, colour: Color) -> Color {
        let Color::Rgb(r, g, b) = colour else { return colour };
        match self.depth {
            Depth::Truecolor => colour,
            Depth::Indexed => Color::Indexed(reduce::indexed(r, g, b)),
            Depth::Named => reduce::named(colour),
            Depth::None => Color::Reset,
        }
    }
}

// `viz/tests/suite/palette.rs` tests that these can be told apart with every kind of colour vision.
const FORWARD: Color = Color::Rgb(0x63, 0xac, 0xf6);
const BACKWARD: Color = Color::Rgb(0xee, 0x9b, 0x49);
const RECOMPUTE: Color = Color::Rgb(0xc7, 0xa3, 0xd8);
const ADD: Color = Color::Rgb(0xc4, 0x56, 0x2a);
const PARAMETERS: Color = Color::Rgb(0x34, 0x66, 0xd9);
const GRADIENTS: Color = Color::Rgb(0xdd, 0x73, 0x2d);
const OPTIMIZER: Color = Color::Rgb(0x19, 0xa2, 0x71);
const GATHERED: Color = Color::Rgb(0x99, 0xc8, 0xff);
const ACTIVATIONS: Color = Color::Rgb(0xb8, 0x74, 0xa8);
const BUCKETS: Color = Color::Rgb(0xf2, 0xcf, 0x4a);
const WORKSPACE: Color = Color::Rgb(0xc6, 0xca, 0xd0);

/// Returns how a class looks: its colour, its glyph, a short name and the shortest one.
const fn class_look(class: Class) -> (Color, &'static str, &'static str, &'static str) {
    match class {
        Class::Parameters => (PARAMETERS, "■", "parameters", "params"),
        Class::Gradients => (GRADIENTS, "▲", "gradients", "grads"),
        Class::Optimizer => (OPTIMIZER, "●", "optimizer", "optimizer"),
        Class::GatheredParameters => (GATHERED, "□", "gathered", "gathered"),
        Class::Activations => (ACTIVATIONS, "◆", "activations", "activations"),
        Class::CommunicationBuckets => (BUCKETS, "△", "buckets", "buckets"),
        Class::Workspace => (WORKSPACE, "○", "workspace", "workspace"),
    }
}

/// Returns the colour of a class, in every view.
pub const fn class_colour(class: Class) -> Color {
    class_look(class).0
}

/// Returns the glyph of a class: filled if a rank keeps the bytes between steps, hollow if it frees
/// them earlier.
pub const fn class_glyph(class: Class) -> &'static str {
    class_look(class).1
}

/// Returns a short name of a class.
pub const fn class_name(class: Class) -> &'static str {
    class_look(class).2
}

/// Returns the shortest name of a class.
pub const fn shortest_name(class: Class) -> &'static str {
    class_look(class).3
}

/// Returns the colour of a pass.
pub const fn pass_colour(pass: Pass) -> Color {
    match pass {
        Pass::Forward => FORWARD,
        Pass::Backward => BACKWARD,
        Pass::Step => OPTIMIZER,
        Pass::Evaluate => WORKSPACE,
        Pass::Recompute => RECOMPUTE,
        Pass::Add => ADD,
    }
}

/// Returns the colour of an operation: that of the class it moves.
pub const fn operation_colour(operation: Operation) -> Color {
    match operation {
        Operation::AllReduce => GRADIENTS,
        Operation::ReduceScatter => BUCKETS,
        Operation::AllGather => GATHERED,
        Operation::Broadcast => PARAMETERS,
        Operation::Send | Operation::Recv => ACTIVATIONS,
        Operation::Barrier | Operation::Scalars => WORKSPACE,
    }
}

/// Returns the small letter of a pass, for narrow places and terminals without colours.
pub const fn pass_glyph(pass: Pass) -> &'static str {
    match pass {
        Pass::Forward => "f",
        Pass::Backward => "b",
        Pass::Step => "u",
        Pass::Evaluate => "e",
        Pass::Recompute => "r",
        Pass::Add => "a",
    }
}

/// Returns the capital letter of an operation, for narrow places and terminals without colours.
pub const fn operation_glyph(operation: Operation) -> &'static str {
    match operation {
        Operation::AllReduce => "A",
        Operation::ReduceScatter => "R",
        Operation::AllGather => "G",
        Operation::Broadcast => "B",
        Operation::Send | Operation::Recv => "M",
        Operation::Barrier | Operation::Scalars => "S",
    }
}

/// Returns the style of text in a colour.
pub const fn ink(colour: Color) -> Style {
    Style::new().fg(colour)
}

/// Returns the style of bold text in a colour.
pub const fn bold(colour: Color) -> Style {
    Style::new().fg(colour).add_modifier(Modifier::BOLD)
}

/// Returns the style of a badge: text on a coloured background, or reversed without colours.
pub fn badge(colour: Color, theme: Theme) -> Style {
    if theme.colours() {
        Style::new().fg(INK).bg(colour).add_modifier(Modifier::BOLD)
    } else {
        Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED)
    }
}

/// Returns the style of the selected rank's name among others in bold: coloured, or reversed
/// without colours.
pub fn selected(theme: Theme) -> Style {
    if theme.colours() { bold(ACCENT) } else { chosen(theme) }
}

/// Returns the style of the selected item among several: a lighter background, or reversed with few
/// colours.
pub fn chosen(theme: Theme) -> Style {
    match theme.depth {
        Depth::Truecolor | Depth::Indexed => bold(ACCENT).bg(SLATE),
        Depth::Named | Depth::None => Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED),
    }
}
