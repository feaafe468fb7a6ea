//! Worst days of `isotherm create --slow URL:SIZE` and of a volume whose `isotherm-store` is killed.

mod shell;

use shell::{PRELUDE, S3, able, check, run, variables};
use std::path::Path;

/// Runs a script over a store in a directory.
fn script(text: &str) {
    let Some(programs) = able() else { return };
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}/objects/prefix", dir.path().display());
    let all = format!("{PRELUDE}{text}");
    check(&run(&all, dir.path(), &programs, &[("URL", url)]));
}

#[test]
fn a_prefix_that_is_taken_is_refused_and_the_one_who_has_it_goes_on() {
    script(
        r"make; serve
head -c 1M /dev/urandom >$T/data; dd if=$T/data of=$T/here/mount/v bs=1M conv=notrunc,fsync status=none
W=$T/other; truncate -s 64M $T/flash2
# Another volume at the same prefix, inside of it, and around it.
fails isotherm create $W --fast $T/flash2 --slow $URL:2G; says 'another store'; says 'assemble --from-store'
fails isotherm create $W --fast $T/flash2 --slow $URL/data/x:2G; says 'inside of another store'
fails isotherm create $W --fast $T/flash2 --slow file://$T/objects:2G; says 'not empty'
test ! -e $W.toml
# The same name again, while it is served.
fails make; says 'exists already\|being served'
cmp -n 1048576 $T/data $T/here/mount/v
# What is wrong is said before anything is made.
fails isotherm create $W --fast $T/flash2 --slow $URL; says 'give the size'
fails isotherm create $W --fast $URL:1G --slow $T/flash2; says 'give it with --slow'
fails isotherm create $W --fast $T/flash2 --slow $URL:2G --slow $T/x:1G; says 'whole slow tier'
fails isotherm create $W --fast $T/flash2 --slow $URL:2G --store order=3; says 'unknown field'
fails isotherm create $W --fast $T/flash2 --slow $T/x:1G --store order_s=3; says 'no object store'
fails isotherm create $W --fast $T/flash2 --slow s3://key:word@bucket/p:1G; says 'no credentials'
if grep -rq key:word $T/other.store; then exit 6; fi
# The other prefix is right, and the same command goes on.
isotherm create $W --fast $T/flash2 --slow file://$T/objects/second:2G
isotherm stop $V; wait $volume; volume=
",
    );
}

#[test]
fn a_creation_that_was_killed_goes_on() {
    script(
        r#"
# At any moment, also between the store and the description of the volume.
for at in 0.02 0.05 0.1 0.2 0.4 0.8; do
    timeout -s KILL $at isotherm create $V --fast $T/here/flash --slow $URL:2G --force >>$T/make.log 2>&1 || :
    if [ -e $V.toml ]; then break; fi
done
p=$(told process 2>/dev/null || :)
[ -e $V.toml ] || isotherm create $V --fast $T/here/flash --slow $URL:2G --force
[ -z "$p" ] || { kill $p 2>/dev/null || :; wait_for ended $p; }
serve
dd if=/dev/urandom of=$T/here/mount/v bs=1M count=4 conv=notrunc,fsync status=none
isotherm stop $V; wait $volume; volume=
# The store was made, and nothing else was.
rm $V.toml; rm -r $V.spool; cp $V.store $T/kept; sed -i 's/prefix/third/' $V.store
isotherm-store make $V.store
truncate -s 0 $T/here/flash; truncate -s 64M $T/here/flash
isotherm create $V --fast $T/here/flash --slow file://$T/objects/third:2G
cmp <(grep ^id $V.store) <(grep ^id $T/kept)
"#,
    );
}

#[test]
fn a_second_start_changes_nothing() {
    script(
        r#"make; serve
dd if=/dev/urandom of=$T/data bs=1M count=2 status=none; dd if=$T/data of=$T/here/mount/v bs=1M conv=notrunc,fsync status=none
mkdir $T/m2
p=$(told process)
fails timeout 60 isotherm serve $V --block-file $T/m2; says 'served already'
kill -0 $p; test ! -s $T/volume.log || ! grep 'it ends when' $T/volume.log
fails isotherm-store run $V.store; says 'another isotherm-store'
cmp -n 2097152 $T/data $T/here/mount/v
# Another store in the place of this one.
sed 's/^id.*/id = "00000000000000000000000000000000"/; s/v\.spool/w.spool/; s/v\.disk/w.disk/' $V.store >$T/here/w.store
mkdir $T/here/w.disk
fails isotherm-store run $T/here/w.store; says 'another store is here'
test $p = $(told process)
isotherm stop $V; wait $volume; volume=; wait_for ended $p
# Offline commands start the store for their time.
isotherm check $V; isotherm release $V --yes >$T/said 2>&1; says "the disk stays in $URL"
"#,
    );
}

/// The disk that comes back must have all that was answered: one that has not is no successor, and no FLUSH is believed.
#[test]
fn a_store_that_lost_something_is_not_gone_on_with() {
    script(
        r#"
isotherm-store create $URL 2G; mkdir $T/here/disk1
one() { isotherm-store serve $URL $T/here/disk1 --spool $V.spool "$@" >>$T/store.log 2>&1 & store=$!; wait_for test -e $T/here/disk1/disk; }
one --order-s 3600
isotherm create $V --fast $T/here/flash --slow $T/here/disk1/disk --policy lru,write-mode=write-through-all
serve
dd if=/dev/urandom of=$T/here/mount/v bs=1M count=4 conv=notrunc,fsync status=none
kill -9 $store; wait $store || :
one --discard-spool
fails dd if=/dev/urandom of=$T/here/mount/v bs=1M seek=8 count=1 conv=notrunc,fsync
grep -q 'may lack what was written' $T/volume.log
kill -9 $volume; wait $volume || :; volume=
"#,
    );
}

/// The worst of all: the store is away, the spool is full, and then `isotherm-store` is killed, which cannot start while the store is away.
#[test]
fn a_full_spool_and_a_kill_while_the_store_is_away() {
    script(
        r"
isotherm create $V --fast $T/here/flash --slow $URL:2G --store spool_size=16M --store order_s=1 --store cache=16M --store remote_wait_s=2
serve
dd if=/dev/urandom of=$T/data bs=1M count=48 status=none
dd if=$T/data of=$T/here/mount/v bs=1M count=1 conv=notrunc,fsync status=none
wait_for waiting
mv $T/objects $T/away; touch $T/objects
dd if=$T/data of=$T/here/mount/v bs=1M skip=1 seek=1 conv=notrunc,fsync status=none & load=$!
stalled() { isotherm status $V >$T/status; grep -q 'AWAY since.*WRITERS WAIT' $T/status; }
wait_for stalled
# A hit goes on.
timeout 20 dd if=$T/here/mount/v bs=64k count=1 status=none | cmp -n 65536 - $T/data
p=$(told process); kill -9 $p
wait_for ended $p
not_served() { isotherm status $V >$T/status; grep -q 'NOT SERVED' $T/status; }
wait_for not_served
sleep 3
timeout 20 dd if=$T/here/mount/v bs=64k count=1 status=none | cmp -n 65536 - $T/data
kill -0 $load
rm $T/objects; mv $T/away $T/objects
wait_for another $p
wait $load
isotherm stop $V; wait $volume
serve
cmp -n $((48 << 20)) $T/data $T/here/mount/v
isotherm stop $V; wait $volume; volume=
",
    );
}

#[test]
fn a_store_that_is_away_at_creation_is_named_and_the_same_command_goes_on() {
    let Some(programs) = able() else { return };
    let dir = tempfile::tempdir().unwrap();
    let of = |text: &str, port: u16| {
        let mut given = variables(port);
        given.push(("URL", "s3://bucket/p".to_owned()));
        check(&run(
            &format!("{PRELUDE}{text}"),
            dir.path(),
            &programs,
            &given,
        ));
    };
    // Nobody listens there.
    of(
        "fails make; says 'the store is away'; test ! -e $V.toml; ! grep -r testing-secret $T\n",
        9,
    );
    let Some(_s3) = S3::start(5979) else { return };
    of("make; ! grep -r testing-secret $T\n", 5979);
}

const REFUSES: &str = r"import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    def answer(self):
        self.send_response(403); self.send_header('Content-Length', '0'); self.end_headers()
    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H); print(s.server_port, flush=True); s.serve_forever()";

#[test]
fn wrong_credentials_are_said_to_be_refused_and_shown_nowhere() {
    let Some(programs) = able() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut server = std::process::Command::new("python3")
        .args(["-c", REFUSES])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = server.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
    let mut given = variables(line.trim().parse().unwrap());
    given.push(("URL", "s3://bucket/p".to_owned()));
    let text = format!(
        "{PRELUDE}fails make; says 'the store refuses'; test ! -e $V.toml; test ! -e $V.spool\n"
    );
    let out = run(&text, dir.path(), &programs, &given);
    let _ = server.kill();
    let _ = server.wait();
    check(&out);
    assert!(!holds_secret(dir.path()));
}

fn holds_secret(dir: &Path) -> bool {
    let grep = std::process::Command::new("grep")
        .args(["-rq", "testing-secret-word"])
        .arg(dir)
        .status();
    grep.unwrap().success()
}
