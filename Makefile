# Short commands for daily work. CMake builds; scripts/setup installs missing packages.
PRESET ?= dev
FUZZ_SECONDS ?= 60
BENCH ?= all
ARGS ?=
STORE ?= $(if $(NODES),postgres,embedded)
PREFIX ?= /usr/local
BUILD ?= build/release
export DESTDIR

.PHONY: help run test check build install install-files bench fuzz tidy setup clean

help:
	@echo 'make run      set up, build, and serve on the embedded store (STORE=postgres: on a PostgreSQL of its own;'
	@echo '              NODES=3: three servers over it)'
	@echo 'make test     set up, build, and run every test (PRESET=dev|clang|asan|ubsan|tsan)'
	@echo 'make check    run make test with more tests on PostgreSQL, the tests under the sanitizers, and make tidy'
	@echo 'make build    set up and build; the binary is build/khala'
	@echo 'make install  build and install binary, manual, completions, unit file and libkhala (PREFIX, DESTDIR)'
	@echo 'make bench    run the benchmarks (BENCH=name runs one, ARGS=… are its options)'
	@echo 'make fuzz     run each fuzz target for FUZZ_SECONDS=60 seconds'
	@echo 'make tidy     check format, lint, layers, lengths and generated pages'
	@echo 'make setup    install every package that these commands need'

build:
	@scripts/setup build
	@cmake --preset release >/dev/null
	@cmake --build build/release --target khala khala_shared khala_static
	@ln -sf release/khala build/khala

install: build
	@$(MAKE) --no-print-directory install-files

# Installs an existing build, as packagers need it.
install-files:
	cmake --install $(BUILD) --prefix $(PREFIX)

run: build
	@$(if $(filter postgres,$(STORE)),scripts/setup postgres)
	@exec $(if $(filter postgres,$(STORE)),scripts/run $(if $(NODES),nodes=$(NODES)) build/khala,build/khala serve) $(ARGS)

test:
	@scripts/setup build test $(if $(filter dev,$(PRESET)),,lint)
	@cmake --preset $(PRESET) >/dev/null
	@cmake --build build/$(PRESET)
	@tests/run build/$(PRESET) $(ARGS)

check: export KHALA_TEST_STORES = both
check: export KHALA_TEST_LONG = 1
check: test
	@for preset in asan tsan; do $(MAKE) --no-print-directory test PRESET=$$preset || exit 1; done
	@$(MAKE) --no-print-directory tidy

bench:
	@scripts/setup build test
	@cmake --preset release >/dev/null
	@cmake --build build/release
	@bench/run build/release $(BENCH) $(ARGS)

fuzz:
	@scripts/setup build lint
	@cmake --preset fuzz >/dev/null
	@cmake --build build/fuzz
	@tests/fuzz/run build/fuzz $(FUZZ_SECONDS)

tidy:
	@scripts/setup build test lint
	@cmake --preset clang >/dev/null
	@cmake --build build/clang
	@tools/tidy build/clang

setup:
	@scripts/setup build test lint

clean:
	rm -rf build
