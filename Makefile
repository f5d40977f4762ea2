# The front door. Meson does the work; this file knows the usual ways in.
#   make             build/plait, build/plait-test, the libraries
#   make demo        build, then write a tale on two CPU devices
#   make demo-hosts  a server over three machines, one of which dies; as root
#   make test        the tests a user runs; minutes
#   make test-long   all of them; hours
#   make check       layers, headers, format, words; needs no build
#   make check-symbols  what the built libraries export
#   make commands    doc/commands.md and doc/llama-options.md anew
#   make hooks       Git checks what is staged, and messages, from then on
#   make ptx         the GPUs' kernels compiled anew for NVIDIA's devices
#   make check-ptx   what assemblers make of them; check-hip: for AMD's devices
#   make test-ptx    the kernels' tests, their PTX run an instruction at a time
#   make pictures    doc/page.png, doc/machine.png
#   make examples    examples/, built against an installed copy, and run
#   make deb         Debian packages in build-deb/
#   make portable    a folder whose command needs glibc alone, and its .tar.xz
#   make bench       the benches' figures on this machine
#   make install     headers, libraries, command, man pages, completions and
#                    pkg-config file; PREFIX=DIR, DESTDIR=DIR
BUILD ?= build
PREFIX ?= /usr/local
MODEL = models/fable-moe-Q8_0.gguf
DEMO = -m $(MODEL) -dev 'cpu*2'

all: $(BUILD)/build.ninja
	@ninja -C $(BUILD)

# Configured again when the first try was cut short: ninja's file comes last.
$(BUILD)/build.ninja:
	@scripts/deps.sh build
	@meson setup $(BUILD)

# Only what the demo needs, so that it is there soon.
demo: $(BUILD)/build.ninja
	@ninja -C $(BUILD) plait
	@$(BUILD)/plait plan $(DEMO)
	@$(BUILD)/plait run $(DEMO) -p "Once upon a time" -n 120 --temp 0.5 -s 7

# The machines are network namespaces, which only root can make.
demo-hosts: $(BUILD)/build.ninja
	@ninja -C $(BUILD)
	@tests/tools/machines_net.py $(BUILD)/plait $(MODEL) demo

# The build makes plait's module of an MPI only if that is there.
test:
	@scripts/deps.sh test
	@$(MAKE) --no-print-directory all
	@scripts/clients.sh $(BUILD)/clients
	@$(BUILD)/plait-test -j $$(($$(nproc) > 1 ? 2 : 1))

# PLAIT_PART=I/N does a share; PARTS="tests defects" some parts.
test-long:
	@scripts/long.sh $(PARTS)

check:
	@scripts/deps.sh check
	@scripts/check.py tree $(BUILD)

check-symbols: all
	@scripts/check.py symbols $(BUILD)

commands:
	@scripts/manual.py md doc/commands.md
	@scripts/manual.py llama doc/llama-options.md

# The path is relative, so each worktree has the hooks of its own commit.
hooks:
	@scripts/hooks/install.sh

# For who changes the kernels' text: these fetch compilers, or say which.
ptx:
	@scripts/gpu_ptx.py make

check-ptx:
	@scripts/gpu_ptx.py check

test-ptx:
	@scripts/deps.sh build
	@[ -f build-ptx/build.ninja ] || meson setup build-ptx -Demu_ptx=true
	@ninja -C build-ptx plait-test
	@build-ptx/plait-test -j $$(($$(nproc) > 1 ? 2 : 1)) -x test_gpu_opencl test_gpu_ test_cpu_ \
	    test_device_cuda test_device_stream test_engine_formats

check-hip:
	@scripts/gpu_hip.py

# The pictures of the page in doc/; wants a Chromium.
pictures: all
	@tests/tools/serve_page.py $(BUILD)/plait $(MODEL) --pictures doc

bench: all
	@for b in $(BUILD)/bench-*; do \
	    [ -f "$$b" ] && [ -x "$$b" ] || continue; \
	    echo "== $${b##*/}"; "$$b" || exit 1; done

examples: all
	@scripts/examples.sh $(BUILD)
	@scripts/installed.sh $(BUILD)

# In a copy, because debhelper writes into the tree.
deb:
	@scripts/deps.sh deb
	@rm -rf build-deb
	@mkdir -p build-deb/plait
	@tar -c --exclude='./build*' --exclude=./.git . | \
	    tar -x -C build-deb/plait
	@cd build-deb/plait && dpkg-buildpackage -b -us -uc
	@ls build-deb/*.deb

portable: all
	@scripts/deps.sh portable
	@scripts/portable.sh $(BUILD) pack

install: all
	@meson configure $(BUILD) --prefix="$(PREFIX)"
	@meson install -C $(BUILD)

clean:
	rm -rf $(BUILD) build-*

.PHONY: all demo demo-hosts test test-long check check-symbols commands hooks ptx check-ptx test-ptx check-hip pictures examples deb portable bench install clean
