//! Where ready processes wait.
