//! Tables of text.

use crate::failure::Failure;

/// Columns with heads and rows of equal length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(heads: &[&str]) -> Self {
        Self {
            heads: heads.iter().map(|head| (*head).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<String>) {
        debug_assert_eq!(row.len(), self.heads.len());
        self.rows.push(row);
    }

    /// As a Markdown table.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = "|".to_owned() + &" --- |".repeat(self.heads.len()) + "\n";
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        line(&self.heads) + &rule + &rows
    }

    /// As CSV; cells with commas or quotes are quoted.
    ///
    /// # Errors
    /// [`Failure::Run`] if the text cannot be written, which memory always can.
    pub fn csv(&self) -> Result<String, Failure> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in std::iter::once(&self.heads).chain(&self.rows) {
            writer.write_record(row).map_err(Failure::run)?;
        }
        let bytes = writer.into_inner().map_err(Failure::run)?;
        String::from_utf8(bytes).map_err(Failure::run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_are_quoted_in_csv() {
        let mut table = Table::new(&["lift", "factor"]);
        table.push(vec!["uniform, iid".into(), "0.9".into()]);
        assert_eq!(table.csv().unwrap(), "lift,factor\n\"uniform, iid\",0.9\n");
        assert_eq!(
            table.markdown(),
            "| lift | factor |\n| --- | --- |\n| uniform, iid | 0.9 |\n"
        );
    }
}
