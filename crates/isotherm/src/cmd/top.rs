//! `isotherm top`: shows one volume, or all of the machine, in a terminal of 80 × 24, or as plain lines for screen readers.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Gauge, Paragraph, Sparkline, Wrap};

use super::ask::lines;
use crate::args::TopArgs;
use crate::control::Request;
use crate::control::client::connect;
use crate::human::{bytes, count, percent, rate, time};
use crate::overview::{Overview, Sample};
use crate::{Failure, place};

/// A server that does not answer within this time is shown as not answering.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Rows above the figures of a volume that is not well.
const HEAD_OF_UNWELL: u16 = 7;
/// Samples of throughput that are kept for the graph.
const HISTORY: usize = 240;

/// One volume that is being followed.
struct Followed {
    volume: PathBuf,
    last: Option<Sample>,
    shown: Result<Overview, String>,
    history: VecDeque<u64>,
}

impl Followed {
    fn new(volume: PathBuf) -> Followed {
        Followed {
            volume,
            last: None,
            shown: Err("not asked yet".into()),
            history: VecDeque::new(),
        }
    }

    /// Asks the volume again. An error is shown, and the volume is asked again the next time, because it may come back.
    fn ask(&mut self) {
        match sample(&self.volume) {
            Ok(Ok(now)) => {
                let overview = Overview::new(&now, self.last.as_ref());
                if !overview.whole {
                    self.history
                        .push_back(overview.per_s[..2].iter().sum::<f64>() as u64);
                    while self.history.len() > HISTORY {
                        self.history.pop_front();
                    }
                }
                self.shown = Ok(overview);
                self.last = Some(now);
            }
            Ok(Err(said)) => {
                let v = self.volume.display();
                self.gone(format!(
                    "{v}: its server, of another version, says:\n{said}"
                ));
            }
            Err(e) => self.gone(e.to_string()),
        }
    }

    fn gone(&mut self, why: String) {
        (self.shown, self.last) = (Err(why), None);
    }
}

/// Both answers of a served volume. A server of another version may not have what a page needs: then there are lines of what it has.
///
/// # Errors
/// The volume is not served, or does not answer in time.
pub fn sample(volume: &std::path::Path) -> Result<Result<Sample, String>, Failure> {
    let client = connect(volume)?;
    let client = client.ok_or_else(|| {
        Failure::failed(format!("{}: is not served (any more)", volume.display()))
    })?;
    let mut client = client.with_limit(TIMEOUT);
    let stats = client.ask(&Request::Stats)?;
    let status = isotherm_answers::read_status(&client.ask(&Request::Status)?);
    let both = isotherm_answers::read(&stats).and_then(|s| Ok((s, status?)));
    let sample = both.map(|(stats, status)| Sample {
        stats,
        status,
        at: Instant::now(),
    });
    Ok(sample.map_err(|_| lines(&stats, "")))
}

/// Shows the display until `q` is pressed, or prints lines.
///
/// # Errors
/// No volume is served, or the terminal fails.
pub fn run(args: &TopArgs) -> Result<(), Failure> {
    let volumes = match &args.volume {
        Some(v) => {
            // This error has the same text in all commands.
            crate::control::client::served(v)?;
            vec![v.clone()]
        }
        None => all_served(),
    };
    if volumes.is_empty() {
        return Err(Failure::failed(
            "no volume is served on this machine (`isotherm list` shows what there is)",
        ));
    }
    let mut all: Vec<Followed> = volumes.into_iter().map(Followed::new).collect();
    let every = Duration::from_secs_f64(args.every);
    if args.plain || !std::io::stdout().is_terminal() {
        return plain(&mut all, every, args.count);
    }
    let mut terminal = ratatui::try_init()
        .map_err(|e| Failure::failed(format!("no terminal to draw on: {e}: use --plain")))?;
    let done = draw_until_quit(&mut terminal, &mut all, every);
    ratatui::restore();
    done.map_err(|e| Failure::failed(format!("the terminal failed: {e}")))
}

fn all_served() -> Vec<PathBuf> {
    let mut all = place::described_volumes();
    all.extend(place::served_volumes());
    all.sort();
    all.dedup();
    all.retain(|v| matches!(connect(v), Ok(Some(_))));
    all
}

/// The same as lines, in one block per interval.
fn plain(all: &mut [Followed], every: Duration, times: Option<u64>) -> Result<(), Failure> {
    let mut left = times;
    loop {
        for one in all.iter_mut() {
            one.ask();
            let text = match &one.shown {
                Ok(o) => o.lines(),
                Err(e) => format!("{e}\n"),
            };
            if !crate::json::is_read(&format!("{text}\n"))? {
                return Ok(());
            }
        }
        left = left.map(|n| n.saturating_sub(1));
        if left == Some(0) {
            return Ok(());
        }
        std::thread::sleep(every);
    }
}

fn draw_until_quit(
    terminal: &mut ratatui::DefaultTerminal,
    all: &mut [Followed],
    every: Duration,
) -> std::io::Result<()> {
    let mut chosen = 0;
    let mut due = Instant::now();
    loop {
        if Instant::now() >= due {
            all.iter_mut().for_each(Followed::ask);
            due = Instant::now() + every;
        }
        terminal.draw(|frame| draw(frame, all, chosen))?;
        if !event::poll(due.saturating_duration_since(Instant::now()))? {
            continue;
        }
        let Event::Key(key) = event::read()? else {
            continue;
        };
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
            KeyCode::Char('n') | KeyCode::Right | KeyCode::Tab => chosen = (chosen + 1) % all.len(),
            KeyCode::Char('p') | KeyCode::Left => chosen = (chosen + all.len() - 1) % all.len(),
            _ => {}
        }
    }
}

fn draw(frame: &mut Frame, all: &[Followed], chosen: usize) {
    let one = &all[chosen];
    let well = one.shown.as_ref().is_ok_and(|o| o.well);
    let rows = Layout::vertical([
        Constraint::Length(if well { 2 } else { HEAD_OF_UNWELL }),
        Constraint::Min(6),
        Constraint::Length(1),
    ]);
    let [head, body, foot] = rows.areas(frame.area());
    let which = if all.len() > 1 {
        format!(
            "{} of {}   n next   p previous   q quit",
            chosen + 1,
            all.len()
        )
    } else {
        "q quit".to_owned()
    };
    frame.render_widget(Paragraph::new(which), foot);
    match &one.shown {
        Ok(o) => {
            let style = if o.well {
                Style::default()
            } else {
                Style::default().add_modifier(Modifier::REVERSED)
            };
            let name = Span::styled(
                format!("{}: ", o.name),
                Style::default().add_modifier(Modifier::BOLD),
            );
            let mut lines = vec![
                Line::from(vec![name, Span::styled(o.sentence.clone(), style)]),
                Line::from(format!(
                    "policy {}{}",
                    o.policy,
                    if o.paced {
                        "   (times of device models)"
                    } else {
                        ""
                    }
                )),
            ];
            let causes = o.causes.iter();
            lines.extend(causes.map(|(word, text)| Line::from(format!("{word}: {text}"))));
            frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), head);
            figures(frame, body, o, &one.history);
        }
        Err(e) => {
            let text = format!("{}\n{e}", one.volume.display());
            frame.render_widget(Paragraph::new(text), head.union(body));
        }
    }
}

fn figures(frame: &mut Frame, area: Rect, o: &Overview, history: &VecDeque<u64>) {
    let tiers = o.tiers.len() as u16;
    let parts = Layout::vertical([
        Constraint::Length(tiers + 2),
        Constraint::Length(10),
        Constraint::Min(3),
    ]);
    let [top, middle, bottom] = parts.areas(area);
    let block = Block::new()
        .borders(Borders::ALL)
        .title(" Tiers: used, and share of accesses served ");
    let inside = block.inner(top);
    frame.render_widget(block, top);
    for (i, t) in o.tiers.iter().enumerate() {
        let row = Rect {
            y: inside.y + i as u16,
            height: 1,
            ..inside
        };
        if row.bottom() > inside.bottom() {
            break;
        }
        let full = if t.size > 0 {
            t.used as f64 / t.size as f64
        } else {
            0.0
        };
        let label = format!("tier {}: {}", t.tier, t.words());
        frame.render_widget(
            Gauge::default().ratio(full.clamp(0.0, 1.0)).label(label),
            row,
        );
    }
    frame.render_widget(
        Paragraph::new(figure_lines(o)).block(Block::new().borders(Borders::ALL).title(format!(
            " {} ",
            if o.whole {
                format!("Mean of {}", time(o.seconds))
            } else {
                format!("The last {}", time(o.seconds))
            }
        ))),
        middle,
    );
    let most = history.iter().max().copied().unwrap_or(0);
    let title = format!(" Requests a second, at most {} ", count(most as f64));
    let block = Block::new().borders(Borders::ALL).title(title);
    let width = usize::from(bottom.width.saturating_sub(2));
    let shown: Vec<u64> = history
        .iter()
        .skip(history.len().saturating_sub(width))
        .copied()
        .collect();
    frame.render_widget(Sparkline::default().block(block).data(&shown), bottom);
}

fn figure_lines(o: &Overview) -> Vec<Line<'static>> {
    let op = |i: usize, name: &str| {
        let mean = o.mean_s[i].map_or_else(|| "-".to_owned(), time);
        Line::from(format!(
            "{name:<8} {:>8}/s  {:>12}  mean {mean:<8}  p99 {}",
            count(o.per_s[i]),
            rate(o.bytes_per_s[i]),
            time(o.p99_s[i])
        ))
    };
    let refused = match o.refusals.as_slice() {
        [] => "none".to_owned(),
        all => all
            .iter()
            .take(4)
            .map(|(w, n)| format!("{w} {}", count(*n as f64)))
            .collect::<Vec<_>>()
            .join(", "),
    };
    let fast = o.tiers.first().and_then(|t| t.served);
    let power = o
        .power_w
        .map_or_else(String::new, |w| format!("   power {w:.1} W"));
    vec![
        op(0, "reads"),
        op(1, "writes"),
        Line::from(format!("flushes  {:>8}/s", count(o.per_s[2]))),
        Line::from(format!(
            "served fast {}   queue {}{power}",
            percent(fast),
            o.queue
        )),
        Line::from(format!("moves    {}", o.moves_words())),
        Line::from(format!("refused  {refused}")),
        Line::from(format!("dirty    {}", bytes(o.dirty))),
        Line::from(format!("errors   {}", o.errors)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overview::tests::{ill, sample};
    use isotherm_answers::Level;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn screen(all: &[Followed]) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal");
        terminal.draw(|f| draw(f, all, 0)).expect("drawn");
        let buffer = terminal.backend().buffer().clone();
        let row = |y| (0..80).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..24)
            .map(|y| row(y).trim_end().to_owned() + "\n")
            .collect()
    }

    fn followed(shown: Result<Overview, String>) -> Followed {
        Followed {
            volume: "/etc/isotherm/v".into(),
            last: None,
            shown,
            history: [0, 1000, 5000, 10_000].into(),
        }
    }

    #[test]
    fn the_screen_looks_as_it_did() {
        let o = Overview::new(&sample(12.0, 300), Some(&sample(10.0, 100)));
        let text = screen(&[followed(Ok(o))]);
        let wanted = include_str!("top_screen.txt");
        assert_eq!(text, wanted, "\n{text}");
    }

    #[test]
    fn what_failed_and_what_is_gone_is_said() {
        let mut bad = sample(1.0, 1);
        let sentence = "FAILED: flush of member 0 failed.";
        ill(&mut bad, Level::Failed, sentence, "a flush failed");
        let text = screen(&[followed(Ok(Overview::new(&bad, None)))]);
        assert!(
            text.starts_with("v: FAILED: flush of member 0 failed."),
            "{text}"
        );
        assert!(text.contains("to do: attach it"), "{text}");
        let text = screen(&[followed(Err("v: is not served (any more)".into()))]);
        assert!(text.contains("is not served"), "{text}");
    }

    #[test]
    fn small_terminals_do_not_break_it() {
        let o = Overview::new(&sample(12.0, 300), None);
        for (w, h) in [(1, 1), (20, 5), (200, 60)] {
            let mut terminal = Terminal::new(TestBackend::new(w, h)).expect("a terminal");
            terminal
                .draw(|f| draw(f, &[followed(Ok(o.clone()))], 0))
                .expect("drawn");
        }
    }
}
