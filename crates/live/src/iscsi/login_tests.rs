use super::super::chap::answer;
use super::*;

const IQN: &str = "iqn.2026-01.org.example:v";

fn login(secrets: Option<&str>) -> Login {
    let secrets = secrets.map(|s| Arc::new(Secrets::parse(s).expect("valid")));
    let target = Target {
        name: IQN.into(),
        secrets,
    };
    Login::new(target, 5, 9, [7; 16])
}

fn request(current: u8, next: u8) -> pdu::Login {
    let mut b = header(0x43, 0x80 | current << 2 | next, 1);
    b[8] = 0x40;
    match pdu::Incoming::parse(&b).expect("valid").what {
        pdu::What::Login(l) => l,
        other => panic!("{other:?}"),
    }
}

fn text(keys: &[(&str, &str)]) -> Vec<u8> {
    let mut t = Vec::new();
    for (k, v) in keys {
        add_pair(&mut t, k, v);
    }
    t
}

fn said(step: &Step) -> Vec<(String, String)> {
    let (Step::Reply(_, t) | Step::Begin(_, t)) = step else {
        panic!("{step:?}")
    };
    let pairs = pairs(t).expect("text");
    pairs.iter().map(|p| (p.0.into(), p.1.into())).collect()
}

fn value<'a>(said: &'a [(String, String)], key: &str) -> &'a str {
    &said.iter().find(|k| k.0 == key).expect(key).1
}

const NAMES: [(&str, &str); 2] = [("InitiatorName", "iqn.x:me"), ("TargetName", IQN)];

#[test]
fn without_secrets_one_request_is_enough() {
    let mut l = login(None);
    let mut keys = NAMES.to_vec();
    keys.extend([
        ("HeaderDigest", "CRC32C,None"),
        ("MaxRecvDataSegmentLength", "65536"),
        ("MaxBurstLength", "16776192"),
        ("FirstBurstLength", "4096"),
        ("InitialR2T", "No"),
        ("ErrorRecoveryLevel", "2"),
        ("X-com.example", "1"),
    ]);
    let step = l.step(&request(1, 3), &text(&keys));
    assert!(matches!(&step, Step::Begin(b, _) if b[14..16] == [0, 5] && b[1] == 0x87));
    let said = said(&step);
    for (key, want) in [
        ("HeaderDigest", "None"),
        ("MaxBurstLength", "1048576"),
        ("FirstBurstLength", "4096"),
        ("InitialR2T", "Yes"),
        ("ErrorRecoveryLevel", "0"),
        ("X-com.example", "NotUnderstood"),
        ("MaxRecvDataSegmentLength", "262144"),
    ] {
        assert_eq!(value(&said, key), want, "{key}");
    }
    assert_eq!((l.terms().max_send, l.terms().first_burst), (65536, 4096));
}

#[test]
fn with_secrets_only_the_right_answer_leads_on() {
    for (secret, passes) in [("secret-of-joe", true), ("secret-of-bob", false)] {
        let mut l = login(Some("joe secret-of-joe\nmutual us our-own-secret"));
        let mut keys = NAMES.to_vec();
        keys.push(("AuthMethod", "CHAP,None"));
        let step = l.step(&request(0, 1), &text(&keys));
        assert_eq!(value(&said(&step), "AuthMethod"), "CHAP");
        assert!(matches!(step, Step::Reply(b, _) if b[1] & 0x80 == 0));
        let step = l.step(&request(0, 1), &text(&[("CHAP_A", "7,5")]));
        let told = said(&step);
        assert_eq!(value(&told, "CHAP_C"), hex(&[7; 16]));
        let response = hex(&answer(9, secret, &[7; 16]));
        let keys = [
            ("CHAP_N", "joe"),
            ("CHAP_R", &response),
            ("CHAP_I", "3"),
            ("CHAP_C", "0x0102"),
        ];
        let step = l.step(&request(0, 1), &text(&keys));
        if !passes {
            assert!(matches!(step, Step::Refuse(b, _) if b[36..38] == [2, 1]));
            continue;
        }
        let own = hex(&answer(3, "our-own-secret", &[1, 2]));
        assert_eq!(value(&said(&step), "CHAP_R"), own);
        assert!(matches!(l.step(&request(1, 3), &[]), Step::Begin(..)));
    }
}

#[test]
fn short_cuts_around_the_secret_are_refused() {
    let secret = Some("joe secret-of-joe");
    let refused = |l: &mut Login, r: pdu::Login, keys: &[(&str, &str)]| matches!(l.step(&r, &text(keys)), Step::Refuse(b, _) if b[36] == 2);
    // An attempt to go directly to the parameters, one to go directly to the end, and another method.
    assert!(refused(&mut login(secret), request(1, 3), &NAMES));
    let mut l = login(secret);
    let step = l.step(&request(0, 3), &text(&NAMES));
    assert!(matches!(step, Step::Reply(b, _) if b[1] & 0x80 == 0));
    let mut none = NAMES.to_vec();
    none.push(("AuthMethod", "None"));
    assert!(refused(&mut login(secret), request(0, 3), &none));
    // Our own challenge is sent back to us.
    let mut l = login(Some("joe secret-of-joe\nmutual us our-own-secret"));
    let mut keys = NAMES.to_vec();
    keys.push(("AuthMethod", "CHAP"));
    l.step(&request(0, 1), &text(&keys));
    l.step(&request(0, 1), &text(&[("CHAP_A", "5")]));
    let right = hex(&answer(9, "secret-of-joe", &[7; 16]));
    let (id, back) = ("9", hex(&[7; 16]));
    let keys = [
        ("CHAP_N", "joe"),
        ("CHAP_R", &right),
        ("CHAP_I", id),
        ("CHAP_C", &back),
    ];
    assert!(refused(&mut l, request(0, 1), &keys));
}

#[test]
fn another_target_no_name_and_endless_talk_are_refused() {
    for keys in [
        &[("InitiatorName", "a"), ("TargetName", "iqn.y:z")][..],
        &[("TargetName", IQN)],
        &[("InitiatorName", "a")],
    ] {
        let step = login(None).step(&request(1, 3), &text(keys));
        assert!(matches!(step, Step::Refuse(..)), "{keys:?}");
    }
    let mut l = login(None);
    let mut r = request(0, 0);
    r.transit = false;
    let ends = (0..100).any(|_| matches!(l.step(&r, &text(&NAMES)), Step::Refuse(..)));
    assert!(ends);
    r.more = true;
    let mut l = login(None);
    let ends = (0..10).any(|_| matches!(l.step(&r, &[b'a'; 4000]), Step::Refuse(..)));
    assert!(ends);
}

/// Sets of keys that a peer may send.
fn alphabet() -> Vec<Vec<u8>> {
    let right = hex(&answer(9, "secret-of-joe", &[7; 16]));
    let wrong = hex(&answer(9, "secret-of-ann", &[7; 16]));
    let other = hex(&answer(8, "secret-of-joe", &[7; 16]));
    let named = |keys: &[(&'static str, &'static str)]| [&NAMES[..], keys].concat();
    let sets: [Vec<(&str, &str)>; 19] = [
        vec![],
        named(&[]),
        named(&[("SessionType", "Discovery")]),
        named(&[("AuthMethod", "CHAP")]),
        named(&[("AuthMethod", "CHAP,None"), ("CHAP_A", "5")]),
        named(&[("AuthMethod", "None")]),
        vec![("AuthMethod", "CHAP")],
        vec![("AuthMethod", "None")],
        vec![("CHAP_A", "5")],
        vec![("CHAP_A", "7")],
        vec![("CHAP_N", "joe")],
        vec![("CHAP_R", &right)],
        vec![("CHAP_N", "joe"), ("CHAP_R", &wrong)],
        vec![("CHAP_N", "joe"), ("CHAP_R", &other)],
        vec![("CHAP_N", "joe"), ("CHAP_R", "0x")],
        vec![("CHAP_N", "ann"), ("CHAP_R", &right)],
        vec![("CHAP_N", ""), ("CHAP_R", &right)],
        vec![("CHAP_N", "joe"), ("CHAP_R", &right)],
        vec![("MaxBurstLength", "4096")],
    ];
    sets.iter().map(|keys| text(keys)).collect()
}

/// Whether this text has the right answer to the challenge.
fn is_right(said: &[u8]) -> bool {
    let right = hex(&answer(9, "secret-of-joe", &[7; 16]));
    let keys = pairs(said).expect("text");
    let of = |key: &str| keys.iter().find(|k| k.0 == key).map(|k| k.1);
    of("CHAP_N") == Some("joe") && of("CHAP_R") == Some(&right)
}

/// Login requests of every stage, with every transition.
fn requests() -> Vec<pdu::Login> {
    let flags = (0..16u8).flat_map(|stages| (0..4u8).map(move |f| f << 6 | stages));
    let parsed = flags.map(|f| {
        pdu::Incoming::parse(&header(0x43, f, 1))
            .expect("a login")
            .what
    });
    parsed
        .map(|what| match what {
            pdu::What::Login(l) => l,
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Every state that a peer can reach × every message: unless it was sent the challenge and gave the right answer, no session begins, and no
/// message of the operational stage is accepted.
#[test]
fn no_sequence_of_messages_leads_around_the_secret() {
    let (words, requests) = (alphabet(), requests());
    let begin = login(Some("joe secret-of-joe\nmutual us our-own-secret"));
    // Each state, and whether the peer was sent a challenge, and has answered it.
    let mut states = vec![(begin, false, false)];
    let mut known = std::collections::HashSet::new();
    let (mut refused, mut begun) = (0, 0);
    while let Some((state, challenged, proved)) = states.pop() {
        for (request, words) in requests
            .iter()
            .flat_map(|r| words.iter().map(move |w| (r, w)))
        {
            let mut l = state.clone();
            let step = l.step(request, words);
            let (text, begins) = match &step {
                Step::Refuse(..) => {
                    refused += 1;
                    continue;
                }
                Step::Reply(_, text) => (text, false),
                Step::Begin(_, text) => (text, true),
            };
            let said = [&state.text[..], words].concat();
            let whole = !request.more;
            let answers = whole && request.current == 0 && challenged && is_right(&said);
            let proved = proved || answers;
            assert!(
                proved || !(begins || (whole && request.current != 0)),
                "{state:?} accepts {request:?} {:?}",
                String::from_utf8_lossy(words)
            );
            begun += u32::from(begins);
            let challenged = challenged || text.windows(7).any(|w| w == b"CHAP_C=");
            // The number of requests is limited on its own; text that goes on and on adds no state.
            l.steps = 0;
            if !begins && l.text.len() <= words.len() {
                let next = (l, challenged, proved);
                if known.insert(format!("{next:?}")) {
                    states.push(next);
                }
            }
        }
    }
    let reached = known.len();
    assert!(
        reached > 50 && refused > 1000 && begun > 0,
        "{reached} states, {refused}, {begun}"
    );
}
