//! Tests that colours of one picture can be told apart with every kind of colour vision, in 24 bits
//! and among 256.
//!
//! The absence of one kind of cone is simulated by the matrices of Machado, Oliveira and Fernandes
//! (2009, severity 1), in linear RGB. Distances are those of CIELAB (1976); a trained eye sees a
//! distance of 2.3.

use events::{Class, Operation, Pass};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;
use screen::theme::{Depth, Theme, class_colour, operation_colour, pass_colour};

type Triple = [f64; 3];

const SIGHTS: [(&str, [Triple; 3]); 4] = [
    ("all cones", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    (
        "no long-wave cones",
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    ),
    (
        "no middle-wave cones",
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    ),
    (
        "no short-wave cones",
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ),
];

fn times(matrix: [Triple; 3], vector: Triple) -> Triple {
    matrix.map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum())
}

/// Returns the colour that a terminal of `depth` shows.
fn shown(colour: Color, depth: Depth) -> [u8; 3] {
    let mut buffer = Buffer::empty(Rect::new(0, 0, 1, 1));
    buffer[(0, 0)].fg = colour;
    Theme { depth, ascii: false }.adapt(&mut buffer);
    let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
    match buffer[(0, 0)].fg {
        Color::Rgb(r, g, b) => [r, g, b],
        Color::Indexed(grey @ 232..) => [8 + 10 * (grey - 232); 3],
        Color::Indexed(number @ 16..) => {
            let cube = number - 16;
            [cube / 36, cube / 6 % 6, cube % 6].map(level)
        }
        other => panic!("{other:?} is none of the 240 fixed colours"),
    }
}

fn linear(value: u8) -> f64 {
    let value = f64::from(value) / 255.0;
    if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
}

/// Converts a colour to CIELAB under D65.
fn lab(rgb: Triple) -> Triple {
    const XYZ: [Triple; 3] = [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ];
    let [x, y, z] = times(XYZ, rgb.map(|value| value.clamp(0.0, 1.0)));
    let root = |t: f64| if t > 216.0 / 24389.0 { t.cbrt() } else { (24389.0 / 27.0 * t + 16.0) / 116.0 };
    let [x, y, z] = [x / 0.95047, y, z / 1.08883].map(root);
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn apart(a: Triple, b: Triple) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

/// Asserts that every two of `colours` have at least the distance `least`.
fn stay_apart(colours: &[(&str, Color)], least: f64) {
    for (depth, (sight, matrix)) in
        [Depth::Truecolor, Depth::Indexed].into_iter().flat_map(|d| SIGHTS.map(|s| (d, s)))
    {
        let seen = |colour| lab(times(matrix, shown(colour, depth).map(linear)));
        for (number, &(name, colour)) in colours.iter().enumerate() {
            for &(other, another) in &colours[..number] {
                let distance = apart(seen(colour), seen(another));
                assert!(distance >= least, "{name} and {other}, {sight}, {depth:?}: {distance:.1}");
            }
        }
    }
}

#[test]
fn classes_differ_for_every_kind_of_colour_vision() {
    let classes: Vec<_> = Class::ALL.iter().map(|&class| (class.label(), class_colour(class))).collect();
    stay_apart(&classes, 20.0);
}

#[test]
fn passes_and_operations_differ_for_every_kind_of_colour_vision() {
    let passes: Vec<_> = Pass::ALL.iter().map(|&pass| (pass.label(), pass_colour(pass))).collect();
    stay_apart(&passes, 13.0);
    let operations =
        [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather, Operation::Scalars];
    let operations = operations.map(|operation| (operation.label(), operation_colour(operation)));
    stay_apart(&operations, 20.0);
}

/// Checks the measure itself: published distances, and colours that only some people can tell
/// apart.
#[test]
fn distances_are_those_of_the_eye() {
    let of = |colour: [u8; 3]| lab(colour.map(linear));
    assert!((apart(of([255; 3]), of([0; 3])) - 100.0).abs() < 0.01);
    let (red, green) = ([0xc0, 0x60, 0x40], [0x80, 0x80, 0x20]);
    let seen = |matrix, colour: [u8; 3]| lab(times(matrix, colour.map(linear)));
    let of_sight = |sight: usize| apart(seen(SIGHTS[sight].1, red), seen(SIGHTS[sight].1, green));
    assert!(of_sight(0) > 3.0 * of_sight(2), "{} {}", of_sight(0), of_sight(2));
}
