//! Text in HTML. Names come from traces, files and configurations: the templates escape all text.

use serde::Serialize;
use std::borrow::Cow;

/// Text without the control characters that HTML does not allow, for use in a template.
pub fn clean(text: &str) -> Cow<'_, str> {
    let wrong = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if text.contains(wrong) {
        Cow::Owned(text.replace(wrong, "\u{fffd}"))
    } else {
        Cow::Borrowed(text)
    }
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
        let shown = maud::html! { (clean("<a href=\"x\">&\u{1}")) };
        assert_eq!(
            shown.into_string(),
            "&lt;a href=&quot;x&quot;&gt;&amp;\u{fffd}"
        );
    }
}
