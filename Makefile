# Hundreds of starts of Python: each is to find what the one before it compiled.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: demo test check prove benchmarks docs release clean
demo: ; @tests/substrate/prepare demo && .venv/bin/python -m tests.substrate.demo
test: ; @tests/substrate/prepare tools && .venv/bin/python -m pytest
check: ; @tests/substrate/prepare && .venv/bin/python -m pytest tests/static tests/unit
prove: ; @tests/substrate/prepare tools && .venv/bin/python -m tests.prove $(AREA)
benchmarks: ; @tests/substrate/prepare tools && .venv/bin/python -m tests.benchmarks
docs: ; @tests/substrate/prepare && .venv/bin/python -m sphinx -W --keep-going -q -c docs . dist/site && echo "dist/site/index.html"
release: ; @tests/substrate/prepare && .venv/bin/python -m tests.install.release
clean: ; @tests/substrate/prepare && .venv/bin/python -m tests.substrate down --all
