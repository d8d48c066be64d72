//! Paths.

use std::path::Path;

/// Returns the directory that contains `path`: `.` for a bare name.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_lies_in_the_current_directory() {
        for (path, directory) in [("a", "."), ("a/b", "a"), ("/a", "/"), ("./a", "."), ("", ".")] {
            assert_eq!(parent(Path::new(path)), Path::new(directory), "{path}");
        }
    }
}
