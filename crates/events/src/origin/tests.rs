use super::*;

fn origin(params: Params) -> Origin {
    Origin {
        program: "isotherm".into(),
        volume: "v".into(),
        policy: "lru".into(),
        epoch: Some(3),
        time_base: Nanos(5),
        params,
        superblocks: vec![None],
    }
}

#[test]
fn budgets_stand_at_the_end_where_one_is_set() {
    let base = Params {
        flush_ahead: 0,
        flush_gather: 0,
        ..Params::default()
    };
    let plain = origin(base.clone()).encode();
    let all = Params {
        moves_max: Some(3),
        wear_bytes_per_day: Some(1 << 40),
        wear_burst: Nanos::from_secs(7),
        sleep_hold: Some(Nanos::from_secs(60)),
        sleep_hold_bytes: Some(9),
        join_bytes: 0,
        join_time: Nanos(8),
        ..base.clone()
    };
    let one = Params {
        sleep_hold: Some(Nanos(1)),
        ..base.clone()
    };
    let costs = Params {
        costs: vec![cost_of([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]), Cost::SLOW],
        ..all.clone()
    };
    let kept = Params {
        kept_writes: true,
        ..costs.clone()
    };
    let keeper = Params {
        keeper: true,
        ..kept.clone()
    };
    let without = origin(all.clone()).encode().len();
    for params in [base, all, one, costs, kept, keeper] {
        let bytes = origin(params.clone()).encode();
        assert!(
            bytes.starts_with(&plain)
                && (bytes == plain) == (budgets(&params) == budgets(&Params::default()))
        );
        let back = Origin::decode(&bytes).map_err(str::to_owned);
        let back = back.expect("what was written is read").params;
        assert_eq!(format!("{back:?}"), format!("{params:?}"));
        for short in plain.len() + 1..bytes.len() {
            // A recording without the costs, or without the fields after them, is complete, too.
            let whole = (short == without && !params.costs.is_empty())
                || (short + 1 == bytes.len() && params.kept_writes);
            assert_eq!(
                Origin::decode(&bytes[..short]).is_ok(),
                whole,
                "{short} bytes"
            );
        }
    }
}

#[test]
fn powers_need_their_costs() {
    let params = |costs: Vec<Cost>| Params {
        flush_gather: 0,
        costs,
        ..Params::default()
    };
    let known = Cost {
        idle_uw: 5_000_000,
        standby_uw: 1,
        down: Nanos(2),
        down_uj: 3,
        ..Cost::SLOW
    };
    let whole = params(vec![Cost::FAST, known]);
    let bytes = origin(whole.clone()).encode();
    let back = Origin::decode(&bytes).map_err(str::to_owned);
    let back = back.expect("what was written is read").params;
    assert_eq!(format!("{back:?}"), format!("{whole:?}"));
    // The powers of two tiers behind the costs of none.
    let mut bad = origin(params(Vec::new())).encode();
    bad.push(0);
    Sleeping::of(&whole).encode(&mut bad);
    assert_eq!(
        Origin::decode(&bad).err(),
        Some("powers of a tier without costs")
    );
}

#[test]
fn what_came_last_is_the_end() {
    let costs = vec![Cost::SLOW, cost_of([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])];
    for costs in [Vec::new(), costs] {
        let params = Params {
            flush_ahead: 300,
            flush_gather: 200,
            costs,
            ..Params::default()
        };
        let mut bytes = origin(params.clone()).encode();
        let back = Origin::decode(&bytes).map_err(str::to_owned);
        let back = back.expect("what was written is read").params;
        assert_eq!(format!("{back:?}"), format!("{params:?}"));
        let slept = Params {
            start_intervals: vec![None, Some(Nanos(77))],
            sleep_start_interval: Some(Nanos(1 << 40)),
            sleep_wait_share: Some(10_000),
            ..params.clone()
        };
        let whole = origin(slept.clone()).encode();
        let back = Origin::decode(&whole).map_err(str::to_owned);
        let back = back.expect("what was written is read").params;
        assert_eq!(format!("{back:?}"), format!("{slept:?}"));
        for short in bytes.len() + 1..whole.len() {
            assert!(Origin::decode(&whole[..short]).is_err(), "{short} bytes");
        }
        let powers = [None, Some(12_000_000)];
        let maxima = [None, Some(70_000)];
        let limits = powers.iter().flat_map(|p| maxima.map(|m| (*p, m)));
        let limits = limits.filter(|l| *l != (None, None));
        for (before, (power_limit_uw, dirty_max)) in
            limits.flat_map(|l| [&params, &slept].map(|p| (p.clone(), l)))
        {
            let limited = Params {
                power_limit_uw,
                dirty_max,
                ..before
            };
            let whole = origin(limited.clone()).encode();
            let back = Origin::decode(&whole).map_err(str::to_owned);
            let back = back.expect("what was written is read").params;
            assert_eq!(format!("{back:?}"), format!("{limited:?}"));
            assert!(Origin::decode(&whole[..whole.len() - 1]).is_err());
        }
        // A recording without the last field comes from an engine without that parameter.
        let older = Origin::decode(&bytes[..bytes.len() - 2]).map_err(str::to_owned);
        let older = older.expect("an older recording is read").params;
        assert_eq!((older.flush_ahead, older.flush_gather), (300, 0));
        bytes.push(1);
        assert!(Origin::decode(&bytes).is_err());
    }
}
