//! Closed forms: bytes per rank and bytes on the wire, before anything runs.
