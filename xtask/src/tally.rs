//! Counts tests from what the test runners print.

use std::ops::AddAssign;

/// How many tests passed, failed and were left out, over any number of test binaries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl Tally {
    /// Sums the closing lines (`test result: ok. 3 passed; 0 failed; 1 ignored; ...`).
    pub(crate) fn of(lines: &[String]) -> Self {
        let mut sum = Self::default();
        for line in lines {
            // Not only at the start: what a test prints without a line break stands before it.
            if let Some((_, counts)) = line.split_once("test result: ") {
                sum += Self::of_counts(counts);
            }
        }
        sum
    }

    /// Tests that really ran.
    pub(crate) fn ran(self) -> u64 {
        self.passed + self.failed
    }

    fn of_counts(counts: &str) -> Self {
        let mut tally = Self::default();
        let words: Vec<&str> = counts.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let Ok(count) = pair[0].parse::<u64>() else { continue };
            match pair[1] {
                "passed" => tally.passed = count,
                "failed" => tally.failed = count,
                "ignored" => tally.ignored = count,
                _ => {}
            }
        }
        tally
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn every_binary_and_the_doc_tests_are_summed() {
        let output = lines(
            "running 2 tests\n\
             test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.01s\n\
             test result: FAILED. 10 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s\n\
             all doctests ran in 0.24s; merged doctests compilation took 0.19s",
        );
        assert_eq!(Tally::of(&output), Tally { passed: 12, failed: 3, ignored: 1 });
    }

    #[test]
    fn a_closing_line_behind_unfinished_output_counts() {
        let output = lines("half a linetest result: ok. 1 passed; 0 failed; 0 ignored;");
        assert_eq!(Tally::of(&output).ran(), 1);
    }

    #[test]
    fn output_without_a_closing_line_counts_nothing() {
        assert_eq!(Tally::of(&lines("error: could not compile `x`\n12 passed")).ran(), 0);
    }
}
