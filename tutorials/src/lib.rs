//! The book and the learn program that runs stages against each other.
