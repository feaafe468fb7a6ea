//! A page: one HTML file with everything in it. It fetches nothing, and its content security policy enforces this.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};

use super::chart::Chart;
use super::data::chart_json;
use super::html::{clean, json as script_json};
use super::table::Table;

const ECHARTS: &str = include_str!("vendor/echarts.min.js");
const LICENSES: &str = include_str!("vendor/LICENSES.txt");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The page may run and load only what is in it.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:";

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
        let data: Vec<Value> = self.charts().map(chart_json).collect();
        // A page without charts does not need the chart library.
        let library = if data.is_empty() { "" } else { ECHARTS };
        let data = script_json(&json!({ "charts": data }));
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                (self.head())
                body {
                    header {
                        div { h1 { (clean(&self.title)) } p.sub { (clean(&self.subtitle)) } }
                        button type="button" id="theme" hidden { "Dark" }
                    }
                    main {
                        noscript { p.note { "Charts need JavaScript; the tables below have the same figures." } }
                        (self.body())
                    }
                    footer {
                        "Made by isotherm " (VERSION) ". This file loads nothing from anywhere."
                        // A page with charts includes the chart library, so it must include the licence of the library.
                        details { summary { "Licences of what is in it" } pre { (clean(LICENSES)) } }
                    }
                    script type="application/json" id="data" { (PreEscaped(data)) }
                    script { (PreEscaped(library)) }
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        };
        page.into_string()
    }

    fn head(&self) -> Markup {
        html! {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content={ "isotherm " (VERSION) };
                title { (clean(&self.title)) }
                style { (PreEscaped(STYLE)) }
            }
        }
    }

    /// The parts in their order. Charts that follow each other share a grid.
    fn body(&self) -> Markup {
        let is_chart = |p: &Part| matches!(p, Part::Chart(_));
        let mut number = 0;
        html! {
            @for parts in self.parts.chunk_by(|a, b| is_chart(a) == is_chart(b)) {
                @if parts.first().is_some_and(is_chart) {
                    div.grid { @for p in parts { (part(p, &mut number)) } }
                } @else {
                    @for p in parts { (part(p, &mut number)) }
                }
            }
        }
    }
}

/// A part of a page. `number` is that of the next chart.
fn part(part: &Part, number: &mut usize) -> Markup {
    match part {
        Part::Heading(t) => html! { h2 { (clean(t)) } },
        Part::Text(t) => html! { p { (clean(t)) } },
        Part::Tiles(t) => tiles(t),
        Part::Table(t) => t.html(),
        Part::Chart(c) => {
            *number += 1;
            figure(c, *number - 1)
        }
    }
}

fn tiles(tiles: &[Tile]) -> Markup {
    html! {
        dl.tiles {
            @for t in tiles {
                div {
                    dt { (clean(&t.label)) }
                    dd { (clean(&t.value)) }
                    @if !t.note.is_empty() { dd.small { (clean(&t.note)) } }
                }
            }
        }
    }
}

fn figure(chart: &Chart, number: usize) -> Markup {
    let title = clean(&chart.title);
    html! {
        figure id={ "fig" (number) } {
            figcaption {
                h3 { (title) }
                @if !chart.note.is_empty() { p.note { (clean(&chart.note)) } }
            }
            div.chart id={ "chart" (number) } data-chart=(number) role="img"
                aria-label={ (title) "; the table below has its figures" } {}
            details { summary { "Table" } (chart.table().html()) }
        }
    }
}
