//! Lines for a person. Whoever stopped reading, as `head` does or a closed window, is no reason for a run to fail:
//! `println!` would panic.

/// A line on standard output; nothing happens if nobody reads it.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {{
        use ::std::io::Write as _;
        let _ = ::std::writeln!(::std::io::stdout(), $($words)*);
    }};
}

/// A line on standard error; nothing happens if nobody reads it. A test's goes past the capture of its output.
#[macro_export]
macro_rules! complain {
    ($($words:tt)*) => {{
        use ::std::io::Write as _;
        let _ = ::std::writeln!(::std::io::stderr(), $($words)*);
    }};
}
