//! `cargo xtask demo words`: the scheduler at work on this repository's own text.

use anyhow::Result;

use crate::house::House;

/// Runs it.
pub(super) fn run(house: &House, args: &[String]) -> Result<bool> {
    super::example(house, "evener-scheduler", "word_count", args)
}
