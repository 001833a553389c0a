//! Tables of text.

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
    pub fn csv(&self) -> String {
        let cell = |text: &String| match text.contains([',', '"']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.clone(),
        };
        let line = |cells: &Vec<String>| {
            let cells: Vec<String> = cells.iter().map(cell).collect();
            cells.join(",") + "\n"
        };
        std::iter::once(&self.heads)
            .chain(&self.rows)
            .map(line)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_are_quoted_in_csv() {
        let mut table = Table::new(&["lift", "factor"]);
        table.push(vec!["uniform, iid".into(), "0.9".into()]);
        assert_eq!(table.csv(), "lift,factor\n\"uniform, iid\",0.9\n");
        assert_eq!(
            table.markdown(),
            "| lift | factor |\n| --- | --- |\n| uniform, iid | 0.9 |\n"
        );
    }
}
