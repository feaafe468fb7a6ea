//! Text in HTML. Names come from traces, files and configurations, so all text is escaped.

use serde::Serialize;

/// Escapes text for use as content and in double-quoted attributes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // HTML allows no other control characters.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// JSON for use inside a script element. It contains no `<`, so nothing in it can end the element or begin a comment.
pub fn json<T: Serialize>(value: &T) -> String {
    // All maps here have text keys, so serialising cannot fail. If it did, an empty object would draw nothing.
    let text = serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned());
    text.replace('<', "\\u003c")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_a_script() {
        let name = "</script><!--<script>alert(1)</script>\u{2028}";
        let text = json(&[name]);
        assert!(!text.contains('<') && !text.contains('\u{2028}'), "{text}");
        let back: Vec<String> = serde_json::from_str(&text).unwrap();
        assert_eq!(back, [name]);
        assert_eq!(
            escape("<a href=\"x\">'&\u{1}"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;\u{fffd}"
        );
    }
}
