//! How a stage ended.

use crate::tally::Tally;

/// How a stage ended, with the tests it ran and a word for the table.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) tally: Tally,
    pub(crate) note: String,
    pub(crate) kind: Kind,
}

/// The three ways to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Passed,
    Failed,
    /// Not possible here, or not asked for; the note says why. Not a failure.
    LeftOut,
}

impl Verdict {
    /// It holds.
    pub(crate) fn passed(tally: Tally, note: impl Into<String>) -> Self {
        Self { tally, note: note.into(), kind: Kind::Passed }
    }

    /// It does not hold. Counted tests may all have passed: a command can fail without one.
    pub(crate) fn failed(tally: Tally, note: impl Into<String>) -> Self {
        Self { tally, note: note.into(), kind: Kind::Failed }
    }

    /// It was not looked at.
    pub(crate) fn left_out(note: impl Into<String>) -> Self {
        Self { tally: Tally::default(), note: note.into(), kind: Kind::LeftOut }
    }

    /// The findings of a check that reads and runs nothing.
    pub(crate) fn of_findings(findings: &[String], what_holds: &str) -> Self {
        for finding in findings {
            println!("{finding}");
        }
        match findings.len() {
            0 => Self::passed(Tally::default(), what_holds),
            1 => Self::failed(Tally::default(), "1 finding"),
            many => Self::failed(Tally::default(), format!("{many} findings")),
        }
    }

    /// Whether the check as a whole must fail.
    pub(crate) fn is_failure(&self) -> bool {
        self.kind == Kind::Failed
    }
}
