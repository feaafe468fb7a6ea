//! The schemas in `docs/json` of the lab's figures, which are made from their types.

use isotherm_answers::schema::{Made, made, titled};

const SEVERAL: &str = "one trace (several traces give an array of these)";

fn all() -> Vec<Made> {
    use isotherm_lab::compare::Comparison;
    use isotherm_traces::generate::Generator;
    use isotherm_traces::{Info, Written};
    let one = |command: &str| format!("{command}: {SEVERAL}");
    let copy = |name, command| made::<Written>(name, command);
    vec![
        ("compare", titled::<Comparison>(&one("compare --json"))),
        made::<isotherm_lab::plan::Plan>("plan", "plan"),
        made::<isotherm_experiments::Reproduced>("reproduce", "reproduce ID"),
        (
            "sim",
            titled::<isotherm_lab::sim::Report>(&one("sim --json")),
        ),
        made::<isotherm_lab::sweep::Summary>("sweep", "sweep"),
        copy("trace-convert", "trace convert"),
        copy("trace-cut", "trace cut"),
        made::<Vec<Generator>>("trace-generators", "trace generators"),
        made::<Info>("trace-info", "trace info"),
        copy("trace-merge", "trace merge"),
        copy("trace-sort", "trace sort"),
    ]
}

#[test]
fn schemas_say_what_the_types_are() {
    let how = "cargo test -p isotherm-experiments --test schemas";
    for (name, text) in all() {
        assert_eq!(isotherm_answers::schema::written(name, &text, how), Ok(()));
    }
}
