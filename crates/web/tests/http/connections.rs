//! More connections than there is room for.

use super::*;

/// Connections that wait for nothing give way, whatever they have had before; where there is no room, whoever comes is told.
#[test]
fn one_more_connection_than_there_is_room_is_served_or_told() {
    const ROOM: usize = 64;
    let source = Arc::<MadeUp>::default();
    let server = start(&source, "127.0.0.1:0", false, false);
    let connect = || {
        let peer = TcpStream::connect(port(&server)).expect("connects");
        peer.set_read_timeout(Some(LIMIT)).expect("set");
        peer
    };
    let silent: Vec<TcpStream> = (0..ROOM).map(|_| connect()).collect();
    assert_eq!(get(&server, "/").0, 200, "among silent ones");
    drop(silent);
    let host = port(&server);
    let kept: Vec<TcpStream> = (0..ROOM)
        .map(|_| {
            let mut peer = connect();
            let ask = format!("GET /icon.svg HTTP/1.1\r\nHost: {host}\r\n\r\n");
            peer.write_all(ask.as_bytes()).expect("written");
            assert_eq!(peer.read(&mut [0; 16]).expect("read"), 16);
            peer
        })
        .collect();
    assert_eq!(get(&server, "/").0, 200, "among those that were answered");
    drop(kept);
    // Streams of events are no idle connections: nobody who watches is thrown out.
    let mut watching: Vec<Events> = (0..16).map(|_| Events::open(&server)).collect();
    for events in &mut watching {
        events.next().expect("an event");
    }
    let silent: Vec<TcpStream> = (0..2 * ROOM).map(|_| connect()).collect();
    for events in &mut watching {
        for _ in 0..2 {
            events.next().expect("they go on");
        }
    }
    drop((silent, watching));
    // Nor are requests that have not come completely.
    let server = start(&source, "127.0.0.1:0", true, true);
    let (host, token) = (port(&server), format!("Authorization: Bearer {TOKEN}"));
    let post = request(
        "POST",
        "/api/set",
        &host,
        &[&token, "Content-Type: application/json"],
        "{} ",
    );
    let begun = Instant::now();
    let mut posting = Vec::new();
    let told = loop {
        let mut peer = TcpStream::connect(&host).expect("connects");
        peer.write_all(&post.as_bytes()[..post.len() - 1])
            .expect("written");
        posting.push(peer);
        if posting.len() >= ROOM {
            let (status, text) = get(&server, "/");
            if status != 200 {
                break text;
            }
        }
        assert!(begun.elapsed() < LIMIT, "there is always room");
    };
    assert!(told.starts_with("HTTP/1.1 503"), "{told}");
    assert!(told.contains("64 connections are in use"), "{told}");
    drop(posting);
    while get(&server, "/").0 != 200 {
        assert!(begun.elapsed() < LIMIT, "there is room again");
    }
}
