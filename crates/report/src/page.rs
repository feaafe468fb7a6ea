//! A page: one HTML file with everything in it. It fetches nothing, and its content security policy enforces this.

use serde_json::{Value, json};

use super::chart::Chart;
use super::data::chart_json;
use super::html::{escape, json as script_json};
use super::table::Table;

const ECHARTS: &str = include_str!("vendor/echarts.min.js");
const LICENSES: &str = include_str!("vendor/LICENSES.txt");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A page under construction. Its parts appear in the order in which they are added.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    title: String,
    subtitle: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Heading(String),
    Text(String),
    Tiles(Vec<Tile>),
    Table(Table),
    Chart(Chart),
}

/// A highlighted figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Tile {
    /// The name of the figure.
    pub label: String,
    /// The figure with its unit.
    pub value: String,
    /// A small note below the figure; may be empty.
    pub note: String,
}

impl Page {
    /// An empty page. `subtitle` says in one line what was run.
    pub fn new(title: impl Into<String>, subtitle: impl Into<String>) -> Page {
        Page {
            title: title.into(),
            subtitle: subtitle.into(),
            parts: Vec::new(),
        }
    }
    /// Adds a heading. The charts below it are side by side if there is room.
    pub fn heading(&mut self, text: impl Into<String>) -> &mut Page {
        self.add(Part::Heading(text.into()))
    }
    /// Adds a paragraph.
    pub fn text(&mut self, text: impl Into<String>) -> &mut Page {
        self.add(Part::Text(text.into()))
    }
    /// Adds highlighted figures.
    pub fn tiles(&mut self, tiles: Vec<Tile>) -> &mut Page {
        self.add(Part::Tiles(tiles))
    }
    /// Adds a table.
    pub fn table(&mut self, table: Table) -> &mut Page {
        self.add(Part::Table(table))
    }
    /// Adds a chart with its table.
    pub fn chart(&mut self, chart: Chart) -> &mut Page {
        self.add(Part::Chart(chart))
    }
    fn add(&mut self, part: Part) -> &mut Page {
        self.parts.push(part);
        self
    }
    /// The charts so far, for static pictures of them.
    pub fn charts(&self) -> impl Iterator<Item = &Chart> {
        self.parts.iter().filter_map(|p| match p {
            Part::Chart(c) => Some(c),
            _ => None,
        })
    }

    /// The whole file as text.
    pub fn html(&self) -> String {
        let mut body: Vec<String> = Vec::new();
        let mut data: Vec<Value> = Vec::new();
        let mut in_grid = false;
        for part in &self.parts {
            let is_chart = matches!(part, Part::Chart(_));
            if is_chart != in_grid {
                let edge = if is_chart {
                    "<div class=grid>\n"
                } else {
                    "</div>\n"
                };
                body.push(edge.to_owned());
                in_grid = is_chart;
            }
            body.push(match part {
                Part::Heading(t) => format!("<h2>{}</h2>\n", escape(t)),
                Part::Text(t) => format!("<p>{}</p>\n", escape(t)),
                Part::Tiles(t) => tiles(t),
                Part::Table(t) => t.html() + "\n",
                Part::Chart(c) => {
                    data.push(chart_json(c));
                    figure(c, data.len() - 1)
                }
            });
        }
        if in_grid {
            body.push("</div>\n".to_owned());
        }
        // A page without charts does not need the chart library.
        let library = if data.is_empty() { "" } else { ECHARTS };
        format!(
            "<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n\
             <meta http-equiv=Content-Security-Policy content=\"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:\">\n\
             <meta name=viewport content=\"width=device-width, initial-scale=1\">\n\
             <meta name=generator content=\"isotherm {version}\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <header><div><h1>{title}</h1><p class=sub>{subtitle}</p></div>\
             <button type=button id=theme hidden>Dark</button></header>\n<main>\n\
             <noscript><p class=note>Charts need JavaScript; the tables below have the same figures.</p></noscript>\n\
             {body}</main>\n<footer>Made by isotherm {version}. This file loads nothing from anywhere.\
             <details><summary>Licences of what is in it</summary><pre>{licenses}</pre></details></footer>\n\
             <script type=\"application/json\" id=data>{data}</script>\n\
             <script>{library}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
            version = env!("CARGO_PKG_VERSION"),
            title = escape(&self.title),
            subtitle = escape(&self.subtitle),
            body = body.concat(),
            // A page with charts includes the chart library, so it must include the licence of the library.
            licenses = escape(LICENSES),
            data = script_json(&json!({ "charts": data })),
        )
    }
}

fn tiles(tiles: &[Tile]) -> String {
    let one = |t: &Tile| {
        let note = if t.note.is_empty() {
            String::new()
        } else {
            format!("<dd class=small>{}</dd>", escape(&t.note))
        };
        let (label, value) = (escape(&t.label), escape(&t.value));
        format!("<div><dt>{label}</dt><dd>{value}</dd>{note}</div>\n")
    };
    let all: String = tiles.iter().map(one).collect();
    format!("<dl class=tiles>\n{all}</dl>\n")
}

fn figure(chart: &Chart, number: usize) -> String {
    let note = if chart.note.is_empty() {
        String::new()
    } else {
        format!("<p class=note>{}</p>", escape(&chart.note))
    };
    format!(
        "<figure id=fig{number}>\n<figcaption><h3>{title}</h3>{note}</figcaption>\n\
         <div class=chart id=chart{number} data-chart={number} role=img aria-label=\"{title}; the table below has its figures\"></div>\n\
         <details><summary>Table</summary>{table}</details>\n</figure>\n",
        title = escape(&chart.title),
        table = chart.table().html(),
    )
}
