//! Text of others on a terminal and in a log. Names on devices, of files, of peers and in traces may hold bytes that move the cursor, change
//! colours or titles, answer for the user, or make a line look like another one.

use std::fmt::Write as _;

/// Whether a terminal or a reader could take the character for something else than text: control characters, separators of lines and
/// paragraphs, invisible ones, and those that change the direction of the text around them.
fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn escaped(text: &str, kept: &[char], escape: impl Fn(&mut String, char)) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_odd(c) && !kept.contains(&c) {
            escape(&mut shown, c);
        } else {
            shown.push(c);
        }
    }
    shown
}

/// One name or word of somebody else: `a\u{1b}[2J` for the bytes that clear a screen.
///
/// ```
/// use isotherm_words::printable::printable;
/// assert_eq!(printable("disk\n\u{1b}[31m\u{e4}"), "disk\\n\\u{1b}[31m\u{e4}");
/// ```
pub fn printable(text: &str) -> String {
    escaped(text, &[], |shown, c| shown.extend(c.escape_default()))
}

/// As [`printable`], for text of this program that has names of others in it: its lines and tabs stay.
pub fn printable_lines(text: &str) -> String {
    escaped(text, &['\n', '\t'], |shown, c| {
        shown.extend(c.escape_default());
    })
}

/// The same JSON, in which such characters are `\u` escapes. What a serialiser leaves of them is inside strings, so no value changes.
pub fn printable_json(json: &str) -> String {
    escaped(json, &['\n'], |shown, c| {
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(shown, "\\u{unit:04x}"); // writing to a String cannot fail
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        for n in (0..0x20).chain(0x7f..0xa0) {
            let c = char::from_u32(n).expect("a character");
            let text = format!("a{c}b");
            for shown in [printable(&text), printable_json(&text)] {
                let kept = shown.contains(c) && c != '\n';
                assert!(!kept && shown.is_char_boundary(1), "{n:x}: {shown}");
            }
            let kept = printable_lines(&text).contains(c);
            assert_eq!(kept, c == '\n' || c == '\t', "{n:x}");
        }
        // A name that reads backwards, and one that is not to be seen.
        assert_eq!(printable("gpj.\u{202e}exe"), "gpj.\\u{202e}exe");
        assert_eq!(printable("v\u{200b}"), "v\\u{200b}");
        assert_eq!(
            printable("Stra\u{df}e \u{65e5}\u{672c} \\ 'x'"),
            "Stra\u{df}e \u{65e5}\u{672c} \\ 'x'"
        );
        assert_eq!(
            printable_json("\"\u{9b}\u{e0041}\"\n"),
            "\"\\u009b\\udb40\\udc41\"\n"
        );
    }
}
