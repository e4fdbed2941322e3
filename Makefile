# The developer commands of this project. Anything longer than a line is a script in tools/.
.DEFAULT_GOAL := build
.PHONY: packages setup build demo test soak bench lint format sanitize docs clean

packages:
	@tools/setup.sh

setup: packages     # install missing Debian packages and .venv, then hookline, its transports and hookline.torch from build/dev
	@tools/build.sh dev _core _native transports

build: packages     # the library, the Python package, tests, benchmarks and examples, into build/dev
	@tools/build.sh dev

demo: build     # train on handwritten digits with every hook
	@tools/demo.sh

test: build     # all C++ and Python tests
	@tools/test.sh

soak: build     # the tests repeatedly, in random order, with the full matrix
	@tools/soak.sh

bench: packages     # the benchmarks in the release build; QUICK=1 runs only the collectives with a performance target
	@tools/build.sh release bench/all _core _native
	@tools/bench.sh $(if $(QUICK),--quick)

lint: build     # formatting, static checks, types, layers, and a build with clang
	@tools/lint.sh

format:     # format the sources
	@tools/format.sh --write

sanitize: packages     # the C++ tests under address, undefined-behaviour and thread sanitizers
	@tools/sanitize.sh

docs: build     # the documentation, into build/docs
	@tools/docs.sh

clean:     # remove build/, keep .venv
	rm -rf build
