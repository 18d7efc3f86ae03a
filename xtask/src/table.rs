//! A table for the terminal.

use std::fmt;

/// Rows under a heading; columns as wide as their widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings and no rows.
    pub(crate) fn new<C: Into<String>>(headings: impl IntoIterator<Item = C>) -> Self {
        Self { rows: vec![headings.into_iter().map(Into::into).collect()] }
    }

    /// Adds a row. The last cell of a row may run on to the right.
    pub(crate) fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            // A cell that ends its row before the last column does not widen its column.
            let inner = self.rows.iter().filter(|row| column + 1 < row.len() || row.len() == columns);
            inner.filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |cells: &[String]| {
            let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        for (index, row) in self.rows.iter().enumerate() {
            writeln!(f, "{}", line(row))?;
            if index == 0 {
                let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                writeln!(f, "{}", rule.join("  "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_a_last_cell_may_run_on() {
        let mut table = Table::new(["a", "b", "c"]);
        table.row(["long cell", "1", "2"]);
        table.row(["x", "a remark that is longer than its column"]);
        let expected = "a          b  c\n---------  -  -\nlong cell  1  2\nx          a remark that is longer than its column\n";
        assert_eq!(table.to_string(), expected);
    }
}
