//! What shells and manuals need of a program: completions and a manual page.

#![forbid(unsafe_code)]

use clap::{Command, Subcommand};
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use std::io;

/// The commands that every program has for shells.
#[derive(Clone, Debug, Subcommand)]
pub enum ShellCommand {
    /// Print completions for a shell, to be saved where it looks for them
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page: `man -l <(PROGRAM man)` shows it
    Man,
}

impl ShellCommand {
    /// Returns what the command prints for the program that `command` defines.
    ///
    /// # Errors
    /// None but those of writing to memory.
    pub fn text(&self, mut command: Command) -> io::Result<String> {
        let mut text = Vec::new();
        match self {
            ShellCommand::Completions { shell } => {
                let name = command.get_name().to_string();
                generate(*shell, &mut command, name, &mut text);
            }
            ShellCommand::Man => text = manual(command)?,
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Returns one manual page for the program and all of its commands.
fn manual(mut command: Command) -> io::Result<Vec<u8>> {
    command.build();
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    for part in command.get_subcommands().filter(|part| !part.is_hide_set() && part.get_name() != "help") {
        let mut section = Vec::new();
        let man = Man::new(part.clone());
        man.render_synopsis_section(&mut section)?;
        man.render_description_section(&mut section)?;
        man.render_options_section(&mut section)?;
        let section = String::from_utf8_lossy(&section).replace(".SH ", ".SS ");
        page.extend(format!(".SH {}\n{section}", part.get_name().to_uppercase()).bytes());
    }
    Ok(page)
}
