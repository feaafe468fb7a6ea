//! The entry functions of `fuzz/` for descriptions, control lines, NBD peers and iSCSI initiators, with seeded inputs for some seconds.
//! `ISOTHERM_FUZZ_SECONDS=N` runs longer, `ISOTHERM_SEED=X` repeats one input.

#[path = "../../../fuzz/src/iscsi.rs"]
mod iscsi;
#[path = "../../../fuzz/src/nbd.rs"]
mod nbd;
#[path = "../../../fuzz/src/seeded.rs"]
mod seeded;
#[path = "../../../fuzz/src/words.rs"]
mod words;

use seeded::{bent, noise, run};

#[test]
fn descriptions_of_any_content() {
    assert!(
        words::config_toml(words::CONFIG.as_bytes()),
        "the valid one is accepted"
    );
    run(
        "config_toml",
        2,
        300,
        |rng| bent(rng, words::CONFIG.as_bytes()),
        |d| {
            words::config_toml(d);
        },
    );
    run(
        "config_toml noise",
        0,
        300,
        |rng| noise(rng, 300),
        |d| {
            words::config_toml(d);
        },
    );
}

#[test]
fn control_lines_of_any_content() {
    assert_eq!(words::control_socket(words::LINES.as_bytes()), 4);
    run(
        "control_socket",
        1,
        500,
        |rng| bent(rng, words::LINES.as_bytes()),
        |d| {
            words::control_socket(d);
        },
    );
    run(
        "control_socket noise",
        0,
        500,
        |rng| noise(rng, 400),
        |d| {
            words::control_socket(d);
        },
    );
}

#[test]
fn nbd_peers_of_any_kind() {
    let mut valid = vec![63];
    valid.extend(nbd::valid_session());
    assert_eq!(nbd::session(&valid), 7, "the valid session is understood");
    run(
        "nbd_session",
        2,
        500,
        |rng| bent(rng, &valid),
        |d| {
            nbd::session(d);
        },
    );
    run(
        "nbd_session noise",
        0,
        300,
        |rng| noise(rng, 3000),
        |d| {
            nbd::session(d);
        },
    );
}

#[test]
fn iscsi_initiators_of_any_kind() {
    let valid = iscsi::valid_session();
    assert_eq!(iscsi::session(&valid), 7, "the valid session is understood");
    for how in 0..4u8 {
        let mut valid = valid.clone();
        valid[0] = how;
        run(
            "iscsi_session",
            1,
            300,
            |rng| bent(rng, &valid),
            |d| {
                iscsi::session(d);
            },
        );
    }
    run(
        "iscsi_session noise",
        0,
        300,
        |rng| noise(rng, 3000),
        |d| {
            iscsi::session(d);
        },
    );
}
