# Every target runs without a terminal and asks nothing. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/local/cargo/bin

# Arguments for `drover lab`, for example: make demo DEMO="--nics 3 --rate 1gbit,500mbit,200mbit"
DEMO ?=
DROVER = $(or $(CARGO_TARGET_DIR),target)/release/drover

.PHONY: help demo test build lint fmt clean

help: ## lists these targets
	@sed -n 's/^\([a-z]*\):[^#]*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## moves a working guest between two hosts made of network namespaces (Debian 12, root)
	@scripts/setup
	@cargo build --release --locked --bin drover --bin droverd
	@$(DROVER) lab migrate $(DEMO)

test: ## installs what is missing, then checks and tests everything (Debian 12, root)
	@scripts/setup --for-tests
	@cargo run --quiet --locked --package xtask -- test

build: ## builds drover and droverd into target/release
	@cargo build --release --locked --bin drover --bin droverd

lint: ## only the checks: formatting, clippy, crate arrows, documentation, licences, shell scripts
	@cargo run --quiet --locked --package xtask -- lint

fmt: ## formats the sources
	@cargo fmt --all

clean: ## removes everything that was built, and the demonstration if one is still up
	@if [ -x $(DROVER) ]; then $(DROVER) lab down || true; fi
	@cargo clean
