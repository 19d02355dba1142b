# Every target runs without a terminal and asks nothing. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/local/cargo/bin

# Arguments for `drover lab`, for example: make demo DEMO="--nics 3 --rate 1gbit,500mbit,200mbit"
DEMO ?=

TARGET = $(or $(CARGO_TARGET_DIR),target)
DROVER = $(TARGET)/release/drover

# Where `make install` puts things; the units follow.
DESTDIR ?=
PREFIX ?= /usr
ZSH_COMPLETIONS ?= $(PREFIX)/share/zsh/site-functions
# What it takes them from.
BUILT ?= $(TARGET)/release
PROBE = $(TARGET)/probe/x86_64-unknown-linux-gnu/release/drover-probe

SHARE = $(DESTDIR)$(PREFIX)/share
UNITS = $(DESTDIR)$(PREFIX)/lib/systemd/system

.PHONY: help demo test build probe install dist lint fmt clean

help: ## lists these targets
	@sed -n 's/^\([a-z]*\):[^#]*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## moves a working guest between two hosts made of network namespaces (Debian 12, root)
	@scripts/setup
	@$(MAKE) --no-print-directory build
	@$(DROVER) lab demo $(DEMO)

# A test run builds everything once: what an incremental build keeps would double the disk that it takes.
test: export CARGO_INCREMENTAL = 0
test: ## installs what is missing, then checks and tests everything (Debian 12, root)
	@scripts/setup --for-tests
	@$(MAKE) --no-print-directory probe
	@cargo run --quiet --locked --package xtask -- test

build: probe ## builds drover and droverd into target/release
	@cargo build --release --locked --bin drover --bin droverd

# The program inside the lab's guests: a guest has no libraries, so it is linked statically. In a
# target folder of its own, because other flags would build everything else anew.
probe:
	@RUSTFLAGS="-C target-feature=+crt-static -C strip=symbols" cargo build --release --locked --package drover-probe \
		--target x86_64-unknown-linux-gnu --target-dir $(TARGET)/probe

install: ## installs what `make build` built: programs, pages, units, configuration (PREFIX, DESTDIR)
	@test -x $(BUILT)/droverd -a -x $(PROBE) || { echo "nothing is built: run \"make build\" first" >&2; exit 1; }
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin $(BUILT)/drover $(BUILT)/droverd
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/lib/drover $(PROBE)
	install -d $(SHARE)/bash-completion/completions $(SHARE)/fish/vendor_completions.d $(DESTDIR)$(ZSH_COMPLETIONS)
	$(BUILT)/drover man $(SHARE)/man/man1
	$(BUILT)/droverd man $(SHARE)/man
	$(BUILT)/drover completions bash >$(SHARE)/bash-completion/completions/drover
	$(BUILT)/drover completions fish >$(SHARE)/fish/vendor_completions.d/drover.fish
	$(BUILT)/drover completions zsh >$(DESTDIR)$(ZSH_COMPLETIONS)/_drover
	install -D -m 644 -t $(UNITS) packaging/*.service packaging/*.timer
	sed -i 's|^ExecStart=/usr/bin|ExecStart=$(PREFIX)/bin|' $(UNITS)/droverd.service $(UNITS)/drover-doctor.service
	@test -e $(DESTDIR)/etc/drover/droverd.toml || \
		install -D -v -m 600 packaging/droverd.toml $(DESTDIR)/etc/drover/droverd.toml
	install -d -m 700 $(DESTDIR)/etc/drover/vms
	install -D -m 644 -t $(SHARE)/doc/drover packaging/vm.toml packaging/droverd.toml README.md SECURITY.md CHANGELOG.md
	install -D -m 644 -t $(SHARE)/doc/drover/docs docs/*.md

dist: ## builds a Debian package and a tarball into target/dist
	@scripts/dist

lint: ## only the checks: formatting, clippy, crate arrows, documentation, licences, shell scripts
	@cargo run --quiet --locked --package xtask -- lint

fmt: ## formats the sources
	@cargo fmt --all

clean: ## removes everything that was built, and the lab of `drover lab up` if it is still up
	@if [ -x $(DROVER) ]; then $(DROVER) lab down || true; fi
	@cargo clean
