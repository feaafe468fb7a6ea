# Everything a developer runs. `make test` is what CI runs.
CARGO ?= cargo
SEEDS ?= 1000
# Property tests draw the same inputs every time, so that a run can be repeated; to look for new ones:
# make test PROPTEST_RNG_SEED=$(date +%s)
PROPTEST_RNG_SEED ?= 20261122

.PHONY: build demo test check soak soak-kill9 soak-kills soak-changes soak-fronts soak-power soak-files soak-fuzz vm-test vm-boot vm-root vm-nfs vm-nfs-export vm-two-ways vm-move-over vm-two-copies vm-vhost dist release repo ansible-check dracut-check report-check python-test python-check deny msrv bare-metal fmt doc bench deps site web-check cockpit-check

build:
	$(CARGO) build --release -p isotherm

# What `isotherm demo` runs besides itself.
DEMO_NEEDS = postmark e2fsprogs mount util-linux

# The main job in one go: a disk, a hybrid and flash at the same work. All of it as root, else the part that needs no root.
demo: build
	@[ "$$(id -u)" -ne 0 ] || scripts/install-deps $(DEMO_NEEDS)
	$(CARGO) run --release --quiet -p isotherm -- demo $(DEMO_ARGS)

deps:
	@scripts/install-deps

# Format, the tree's own checks, lints, then tests and documentation; warnings are errors. SUITE_ARGS: see scripts/run-suites.
test: deps
	$(CARGO) fmt --all --check
	scripts/tidy
	scripts/site --check
	cd python && $(CARGO) fmt --check
	cd fuzz && $(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	PROPTEST_RNG_SEED=$(PROPTEST_RNG_SEED) CARGO="$(CARGO)" scripts/run-suites $(SUITE_ARGS)

# Quick: does it compile without warnings?
check:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# The hostile world over many seeds: make soak SEEDS=100000
soak:
	@base=$$(date +%s); echo "seeds from $$base"; \
	ISOTHERM_SEED_BASE=$$base ISOTHERM_SEEDS=$(SEEDS) $(CARGO) test --release --locked -p isotherm-hostile -p isotherm-lab -- --nocapture

# kill -9 of the server under load, fio --verify after each (root)
soak-kill9:
	ISOTHERM_KILLS=50 $(CARGO) test --locked -p isotherm --test kill9 -- --nocapture

# kill -9 a hundred times under sqlite on ext4 and on XFS, raw durable and flushed writes (NBD) and PostgreSQL, with changes of policy (root)
soak-kills:
	seed=$$(date +%s); \
	ISOTHERM_SEED=$$seed ISOTHERM_KILLS=50 $(CARGO) test --locked -p isotherm --test kill9 -- --nocapture --test-threads=1 a_database && \
	ISOTHERM_SEED=$$seed ISOTHERM_KILLS=10 $(CARGO) test --locked -p isotherm --test postgres -- --nocapture

# The flash of a volume is taken out, given, enlarged and replaced a hundred times under a writer, with kills in the middle
soak-changes:
	ISOTHERM_SEED=$$(date +%s) ISOTHERM_CHANGES=100 $(CARGO) test --locked -p isotherm --test flash_changes -- --nocapture

# kill -9 twenty times under each front end of this machine; ublk: scripts/vm-ublk in a guest (root, for the loop device)
soak-fronts:
	ISOTHERM_KILLS=20 $(CARGO) test --locked -p isotherm --test front_ends -- --nocapture kills next_server

# The power fails under the real world; members drop what was not flushed (root)
soak-power:
	ISOTHERM_SEEDS=$(SEEDS) $(CARGO) test --locked -p isotherm --test power_loss -- --nocapture

# pjdfstest, fsx, our own suite and PostgreSQL (the mount killed ten times) on a mount that moves every file at random (root)
soak-files:
	scripts/install-deps libacl1-dev postgresql postgresql-contrib
	scripts/soak-files

# The entry functions of fuzz/ with seeded inputs, a minute each. With a nightly compiler and cargo-fuzz:
# cargo +nightly fuzz run checkpoint_and_recovery (fuzz/fuzz_targets has the list)
soak-fuzz:
	ISOTHERM_FUZZ_SECONDS=60 $(CARGO) test --locked -p isotherm-hostile --test fuzz_store -- --nocapture
	ISOTHERM_FUZZ_SECONDS=60 $(CARGO) test --locked -p isotherm --test fuzz_words -- --nocapture
	ISOTHERM_FUZZ_SECONDS=60 $(CARGO) test --locked -p isotherm-hostile --test fuzz_events -- --nocapture

# FLUSH on the kernel's block devices under dm-log-writes, in a guest: skipped unless ISOTHERM_VM names the program that runs it
vm-test: build
	scripts/vm-dm-log-writes.sh

# A machine with systemd that boots, shuts down and loses power over a volume in /etc/fstab (root; half an hour without KVM)
vm-boot:
	scripts/install-deps mmdebstrap qemu-system-x86 qemu-utils
	scripts/dist deb
	scripts/vm-boot target/dist/isotherm_*.deb

# A machine whose root file system is on a volume (root; an hour without KVM)
vm-root:
	scripts/install-deps mmdebstrap qemu-system-x86 qemu-utils
	scripts/dist deb
	scripts/vm-root target/dist/isotherm_*.deb

# A directory of NFS as the slow tier of `isotherm mount`, in a guest (skipped unless ISOTHERM_VM names the program that runs it)
vm-nfs: build
	scripts/vm-nfs

# `isotherm mount` exported by the kernel's NFS server, in a guest (skipped unless ISOTHERM_VM names the program that runs it)
vm-nfs-export: build
	scripts/vm-nfs-export

# Two servers of one volume over NFS, and a volume on 9p, in a guest (skipped unless ISOTHERM_VM names the program that runs it)
vm-two-ways: build
	scripts/vm-two-ways

# The recipes for moving over from bcache, an LVM cache and Open CAS, in a guest (skipped unless ISOTHERM_VM names the program that runs it)
vm-move-over: build
	scripts/vm-move-over run

# A virtual machine whose disk is a volume (root; an emulated machine)
vm-vhost: build
	scripts/vm-vhost target/release/isotherm

# RAID1, dm-integrity and LUKS below a volume, with failures under load, in a guest (skipped unless ISOTHERM_VM names the program that runs it)
vm-two-copies: build
	scripts/vm-two-copies run

# The Ansible role, with ansible-core from PyPI and files as devices
ansible-check: build
	@[ "$$(id -u)" -ne 0 ] || scripts/install-deps python3-venv e2fsprogs
	scripts/ansible-check target/release/isotherm

# The pages of reports in a real browser; screenshots and pictures to look at stay in target/tmp
report-check:
	@[ "$$(id -u)" -ne 0 ] || scripts/install-deps chromium
	ISOTHERM_NEED_CHROMIUM=1 $(CARGO) test --locked -p isotherm-report --test report_browser -- --nocapture

# The web view in a real browser, clicked through under load; pictures to look at stay in target/tmp
web-check:
	@[ "$$(id -u)" -ne 0 ] || scripts/install-deps chromium fio
	ISOTHERM_NEED_CHROMIUM=1 $(CARGO) test --locked -p isotherm --test service -- --nocapture web::the_page_works

# The page of Debian's Cockpit in the same browser, over a real bridge (root). It needs no login: while it runs, every user of this machine can
# use that Cockpit as root, so run it in a container or a guest
cockpit-check:
	scripts/install-deps chromium cockpit-ws cockpit-bridge cockpit-system e2fsprogs
	ISOTHERM_NEED_CHROMIUM=1 $(CARGO) test --locked -p isotherm --test service -- --nocapture cockpit::

# The documentation as a site in target/site, with mdBook
site:
	scripts/site

# The Python package as users get it: built and installed by pip, its tests (a dask cluster among them), the example. Not in
# `test`: built cold it takes longer than three minutes, and it needs an interpreter and a package index; `test` compiles its Rust.
python-test: python-check
	scripts/python-test

# Its Rust part alone
python-check:
	cd python && $(CARGO) fmt --check && $(CARGO) clippy --release --locked --all-targets -- -D warnings

# Licences, sources and bans of everything that is linked in, with cargo-deny (deny.toml); then what is known to be vulnerable, unsound or
# unmaintained. The database of advisories is a git repository: without a way to it an earlier copy is asked, and without one that is said.
ADVISORIES = $(or $(CARGO_HOME),$(HOME)/.cargo)/advisory-dbs
deny:
	@command -v cargo-deny >/dev/null || $(CARGO) install cargo-deny --locked --version 0.20.2
	$(CARGO) deny check licenses bans sources
	@if $(CARGO) deny fetch db 2>/dev/null; then $(CARGO) deny check advisories; \
	elif ls -d $(ADVISORIES)/*/.git >/dev/null 2>&1; then \
		echo "deny: the database of advisories cannot be fetched: an earlier copy in $(ADVISORIES) is asked"; \
		$(CARGO) deny --offline check advisories; \
	else echo "deny: SKIPPED: advisories: their database cannot be fetched, and there is no earlier copy in $(ADVISORIES)"; fi

# The oldest compiler that Cargo.toml promises
MSRV = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
msrv:
	rustup toolchain install $(MSRV).0 --profile minimal
	$(CARGO) +$(MSRV).0 check --workspace --locked --target-dir target/msrv
	$(CARGO) +$(MSRV).0 check -p isotherm --no-default-features --locked --target-dir target/msrv

# The core without an operating system: 64 and 32 bits
bare-metal:
	rustup target add x86_64-unknown-none thumbv7em-none-eabi
	$(CARGO) build -p isotherm-core --locked --target x86_64-unknown-none --target thumbv7em-none-eabi

# The Debian packages, the static programs, wheel, container image, SBOM and checksums, in target/dist (scripts/dist); then each of them
# is used once (scripts/dist-check)
dist:
	@[ "$$(id -u)" -ne 0 ] || scripts/install-deps lintian musl-tools buildah python3-venv libnbd-bin jq qemu-user-static
	scripts/dist
	scripts/dist-check

# The same, signed, with an apt repository in target/repo (scripts/repo); then the packages are installed from there in a clean Debian, and
# the first commands of README.md run (scripts/release-check, root). KEY is an OpenPGP key of your keyring: make release KEY=you@example.org
release:
	@[ -n "$(KEY)" ] || { echo "release: name the key that signs: make release KEY=..." >&2; exit 2; }
	$(MAKE) dist
	@[ "$$(id -u)" -ne 0 ] || scripts/install-deps mmdebstrap gpg gpgv dpkg-dev
	scripts/repo "$(KEY)"
	scripts/release-check

# The repository alone, of what is in target/dist; unsigned without KEY
repo:
	scripts/repo $(KEY)

# A boot image of Debian's dracut around the package, looked into (root)
dracut-check:
	scripts/install-deps mmdebstrap
	scripts/dist deb
	scripts/dracut-check target/dist/isotherm_*.deb

fmt:
	$(CARGO) fmt --all
	cd python && $(CARGO) fmt

doc:
	$(CARGO) doc --workspace --no-deps --locked

# Never part of the tests: timings depend on the machine. Goes on where it was stopped, and writes docs/performance.md from what it keeps;
# BENCH_ARGS: groups, or --for SECONDS (bench/performance.py --help)
# All is built before anything is measured.
bench: build
	$(CARGO) build --release -p isotherm-live --example fuse_pread
	$(CARGO) bench --no-run -p isotherm-live --bench engine --bench recovery --bench map -p isotherm-lab --bench sim --bench policies
	bench/performance.py run $(BENCH_ARGS)
