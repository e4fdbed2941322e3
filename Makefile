# The commands of this project. Each is thin: what takes more than a line lives in tools/.
.DEFAULT_GOAL := build
.PHONY: packages setup build demo test soak bench lint format sanitize docs clean

packages:
	@tools/setup.sh

setup: packages     # install what is missing, Debian packages and .venv; then hookline, its engines and hookline.torch in it, from build/dev
	@tools/build.sh dev _core _native engines

build: packages     # the library, the Python package, tests, benchmarks and examples, into build/dev
	@tools/build.sh dev

demo: build     # show what the library does
	@tools/demo.sh

test: build     # all C++ and Python tests
	@tools/test.sh

soak: build     # the same tests, again and again in random order
	@tools/soak.sh

bench: packages     # the benchmarks, from the release build; QUICK=1 for a few minutes of the collectives
	@tools/build.sh release bench/all _core _native
	@tools/bench.sh $(if $(QUICK),--quick)

lint: build     # formatting, static checks, types, layers, and a build with clang
	@tools/lint.sh

format:     # rewrite the sources as lint wants them
	@tools/format.sh --write

sanitize: packages     # the C++ tests under address, undefined-behaviour and thread sanitizers
	@tools/sanitize.sh

docs: build     # the documentation, into build/docs
	@tools/docs.sh

clean:     # everything that was built; .venv stays
	rm -rf build
