//! Plain tables for display.

/// Columns are as wide as their widest cell, with two spaces between them. The last column is not padded.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |i: usize| {
        let cells = rows
            .iter()
            .filter_map(|r| r.get(i))
            .map(|c| c.chars().count());
        cells.chain([head[i].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = line(head.iter().copied(), &widths);
    for row in rows {
        text += &line(row.iter().map(String::as_str), &widths);
    }
    text
}

fn line<'a>(cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
    let padded: Vec<String> = cells.zip(widths).map(|(c, w)| format!("{c:<w$}")).collect();
    format!("{}\n", padded.join("  ").trim_end())
}

/// Lines of at most `wide` characters, wrapped between words.
pub fn wrapped(text: &str, wide: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.is_empty() {
            word.clone_into(line);
        } else if line.chars().count() + 1 + word.chars().count() <= wide {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn columns_line_up() {
        let rows = vec![
            vec!["a".into(), "long cell".into()],
            vec!["bbbb".into(), "x".into()],
        ];
        assert_eq!(
            table(&["k", "value"], &rows),
            "k     value\na     long cell\nbbbb  x\n"
        );
    }
}
