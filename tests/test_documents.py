"""The documents: short where they must be, true of the code where they name it, and their commands run."""

import contextlib
import io
import math
import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import intervalcert
from compare.__main__ import APART, PARTS
from intervalcert.backends import registry
from intervalcert.bounds.results import Method
from intervalcert.checker import archive as certified
from intervalcert.cli import options
from intervalcert.cli.commands import _COMMANDS
from intervalcert.cli.program import main
from intervalcert.io import files
from intervalcert.io.bounds_file import FORMAT_VERSION
from intervalcert.io.models import archives, tensors
from intervalcert.model import arrays, network
from intervalcert.numbers import parsing

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "tests" / "fixtures"
GUIDE = ROOT / "docs" / "guide.md"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
DESCRIBING = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]
"""A changelog names what was, too."""

OTHER_OPTIONS = {"--short", "--shared", "--minutes", "--replay", "--check"}
"""Of compare and ruff."""


def name_of(path):
    return str(path.relative_to(ROOT))


def documents(paths=DOCUMENTS):
    return pytest.mark.parametrize("path", paths, ids=name_of)


def prose(path):
    """The text without blocks of code."""
    return re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)


def blocks(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), flags=re.DOTALL | re.MULTILINE)


def commands(path):
    """What a reader is told to type, without comments."""
    lines = [line for block in blocks(path, "console") for line in block.splitlines() if line.startswith("$ ")]
    return [re.sub(r"\s+# .*", "", line.removeprefix("$ ")) for line in lines]


# -- form -------------------------------------------------------------------------------------------------------------


def test_the_documents_are_there():
    wanted = ["README", "CHANGELOG", "CONTRIBUTING", "SECURITY", "docs/guide", "docs/model-files", "docs/guarantees"]
    wanted += ["docs/theory", "docs/evidence", "docs/file-formats"]
    assert {name_of(path) for path in DOCUMENTS} >= {f"{name}.md" for name in wanted}


def test_the_readme_is_a_page():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@documents()
def test_lines_are_short(path):
    assert [line for line in path.read_text().splitlines() if len(line) > 120] == []


def anchors(path):
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", prose(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def resolves(target, path):
    """Whether a link of that document leads somewhere. (Those to other places are not looked at.)"""
    if target.startswith("https://"):
        return True
    file, _, anchor = target.partition("#")
    found = (path.parent / file).resolve() if file else path
    return found.exists() and (not anchor or anchor in anchors(found))


def broken_links(path):
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)) if not resolves(target, path)]


@documents()
def test_links_between_documents_resolve(path):
    assert broken_links(path) == []


def test_a_broken_link_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One part\n[a](page.md) [b](#one-part) [c](gone.md)\n[d](page.md#another) [e](#two)\n")
    assert broken_links(page) == ["gone.md", "page.md#another", "#two"]


def test_every_document_is_reached_from_the_readme():
    linked = re.findall(r"\]\(([^)\s#]+)", prose(ROOT / "README.md"))
    assert {name_of(path) for path in DOCUMENTS} - {"README.md"} <= set(linked)


@documents()
def test_rows_of_a_table_have_as_many_cells(path):
    rows = [(line, len(re.findall(r"(?<!\\)\|", line))) for line in prose(path).splitlines()]
    for (line, bars), (below, others) in pairwise(rows):
        if line.startswith("|") and below.startswith("|"):
            assert bars == others, below


# -- what they name ---------------------------------------------------------------------------------------------------


def missing_files(text):
    """Files, folders and modules of this project that a text names, and that are not there."""
    files = re.findall(r"\b((?:intervalcert|compare|tests)/[\w./]+\.(?:py|md|png))", text)
    folders = re.findall(r"`((?:intervalcert|compare|tests|docs)/(?:\w+/)*)`", text)
    dotted = [name for name in re.findall(r"\bintervalcert\.([a-z_][\w.]*\w)", text) if not hasattr(intervalcert, name)]
    modules = [ROOT.joinpath("intervalcert", *name.split(".")) for name in dotted]
    wrong = [name for name in files if not (ROOT / name).is_file()]
    wrong += [name for name in folders if not (ROOT / name).is_dir()]
    found = (module.is_dir() or module.with_suffix(".py").is_file() for module in modules)
    return wrong + [name for name, there in zip(dotted, found, strict=True) if not there]


@documents()
def test_modules_and_files_that_are_named_exist(path):
    assert missing_files(path.read_text()) == []


def test_a_module_that_is_gone_is_noticed():
    text = "`intervalcert/proof/norms.py` `intervalcert/lipschitz.py` `intervalcert/proof/` `intervalcert/guesses/` "
    text += "intervalcert.proof.norms intervalcert.proof.lipschitz intervalcert.certify intervalcert.certain."
    assert missing_files(text) == ["intervalcert/lipschitz.py", "intervalcert/guesses/", "proof.lipschitz", "certain"]


def test_every_room_is_in_the_walk():
    rooms = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.MULTILINE)
    held = {path.stem for path in (ROOT / "intervalcert").iterdir()} - {"__init__", "__main__", "__pycache__"}
    assert set(rooms) == held - {"py", "data"}


def test_the_guide_has_every_public_name_and_every_command():
    text = GUIDE.read_text()
    assert [name for name in intervalcert.__all__ if not re.search(rf"\b{name}\b", text)] == []
    rows = re.findall(r"^\| `(\w+)[^`]*` \|", text, flags=re.MULTILINE)
    assert set(_COMMANDS) <= set(rows)


@pytest.fixture(scope="module")
def long_options():
    """Of all commands, as their help says them."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert [main([command, "--help"]) for command in _COMMANDS] == [0] * len(_COMMANDS)
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", said.getvalue()))


def test_the_guide_and_the_model_files_have_every_option(long_options):
    named = GUIDE.read_text() + (ROOT / "docs" / "model-files.md").read_text()
    assert {option for option in long_options if not re.search(rf"{option}(?![\w-])", named)} == set()


@documents(DESCRIBING)
def test_options_that_are_named_exist(path, long_options):
    own = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", path.read_text()))
    assert own - long_options - OTHER_OPTIONS == set()


def test_the_guide_has_every_number_system_and_says_which_is_the_default():
    default = options.parsed(["bounds", "MODEL"]).backend
    rows = re.findall(r"^\| `(\w+)`( \(default\))? \| .* \| .* \| .* \|$", GUIDE.read_text(), flags=re.MULTILINE)
    assert {name for name, _ in rows} == {*registry.backend_names(), default}
    assert [name for name, marked in rows if marked] == [default]


def test_the_bounds_file_is_described_field_by_field(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bounds = intervalcert.compute_bounds(FIXTURES / "mlp.npz")
    intervalcert.save_bounds(bounds, "bounds.json")
    text = (ROOT / "docs" / "file-formats.md").read_text()
    fields = set(re.findall(r'"(\w+)": ', Path("bounds.json").read_text())) - {name for name, _ in bounds.versions}
    assert {field for field in fields if not re.search(rf"[`\"]{field}[`\"]", text)} == set()
    assert set(Method.__dataclass_fields__) <= set(re.findall(r"`(\w+)`", text))
    assert f"| `version` | {FORMAT_VERSION} |" in text


def test_limits_are_those_of_the_code():
    text = (ROOT / "SECURITY.md").read_text()
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", text, flags=re.MULTILINE))
    growth = f"{files.FREE_BYTES >> 20} MiB, or {files.MAX_GROWTH} times its size"
    archive = f"{archives.MAX_UNPACKED_BYTES >> 30} GiB for an archive, in {archives.MAX_MEMBERS:,} members"
    layer, every = int(math.log2(arrays.MAX_ENTRIES)), int(math.log2(tensors.MAX_NUMBERS))
    computed = [tensors.MAX_COMPUTED, tensors.MAX_LENGTH, tensors.MAX_BITS, tensors.MAX_WORK]
    wanted = {
        "a text or JSON file": f"{files.MAX_FILE_BYTES >> 20} MiB",
        "what a compressed file unpacks to": f"{growth}; {archive}",
        "layers, classes": f"{network.MAX_LAYERS:,} each",
        "a number in a text": f"{parsing.MAX_DIGITS:,} digits, decimal exponents of ±{parsing.MAX_EXPONENT:,}",
        "a certificate": f"{certified.LEAST_ROOM >> 20} MiB unpacked, or {certified.MOST_GROWTH} times its size; "
        f"{certified.MOST_MANIFEST >> 20} MiB of manifest, and of directory",
        "a bound": f"binary exponents of ±{parsing.MAX_BINARY_EXPONENT:,}",
        "bits of the grid (`--prec`)": f"{registry.MIN_PREC} to {registry.MAX_PREC:,}",
    }
    assert network.MAX_LAYERS == network.MAX_CLASSES
    assert certified.MOST_MANIFEST == certified.MOST_DIRECTORY
    assert {what: rows.get(what) for what in wanted} == wanted
    weights = rows["weights of a model"]
    assert weights.startswith(f"2^{int(math.log2(tensors.FREE_NUMBERS))}, or 2 for each byte")
    assert f"2^{layer} in a layer; 2^{every} numbers" in weights
    assert [2 ** int(x) for x in re.findall(r"2\^(\d+)", rows["constants that are computed"])] == computed


def test_the_parts_of_the_evidence_have_their_chapters():
    chapters = re.findall(r"^## (\w+)$", (ROOT / "docs" / "evidence.md").read_text(), flags=re.MULTILINE)
    assert set(PARTS) <= set(chapters)


# -- what they tell to run --------------------------------------------------------------------------------------------


@pytest.fixture
def workshop(tmp_path, monkeypatch):
    """A folder with the files that the documents speak of, all of one small network."""
    monkeypatch.chdir(tmp_path)
    for made, ending in (("mlp_dynamo", "onnx"), ("mlp", "npz"), ("mlp", "pt"), ("zoo_softmax", "keras")):
        shutil.copy(FIXTURES / f"{made}.{ending}", f"model.{ending}")
    for made in ("model", "m"):
        shutil.copy(FIXTURES / "mlp.txt", f"{made}.txt")
    shutil.copy(FIXTURES / "mlp_biases.txt", "biases.txt")
    _named_tensors(Path("model.safetensors"))
    draw = np.random.default_rng(0)
    np.save("images.npy", draw.integers(0, 256, (5, 6), dtype=np.uint8))
    np.save("logits.npy", draw.normal(size=(5, 3)).astype(np.float32))
    np.save("labels.npy", draw.integers(0, 3, 5))
    np.save("scores.npy", draw.normal(size=5))
    np.savez("single.npz", W0=draw.normal(size=(4, 3)), W1=draw.normal(size=(1, 4)))
    return tmp_path


def _named_tensors(path):
    numpy = pytest.importorskip("safetensors.numpy")
    with np.load(FIXTURES / "mlp.npz") as arrays:
        tensors = {
            f"{name}.{kind}": np.ascontiguousarray(arrays[f"{letter}{index}"])
            for index, name in enumerate(("encoder", "hidden", "head"))
            for kind, letter in (("weight", "W"), ("bias", "b"))
        }
    numpy.save_file(tensors, path)


def needs_packages():
    for package in ("onnx", "safetensors", "h5py", "torch"):
        pytest.importorskip(package)


RUNNING = [path for path in DESCRIBING if any("intervalcert " in command for command in commands(path))]


@documents(RUNNING)
def test_commands_run(path, workshop, capsys):
    needs_packages()
    ran = 0
    for command in commands(path):
        words = shlex.split(command)
        if words[0] != "intervalcert":
            continue
        assert main(words[1:]) == 0, (command, capsys.readouterr().err)
        ran += 1
    assert ran or path.name == "README.md"


def test_few_commands_are_not_run():
    """Those of other programs; `compare` takes the names that it is given."""
    others = {command for path in DESCRIBING for command in commands(path) if not command.startswith("intervalcert ")}
    for command in sorted(others):
        program, *words = shlex.split(command)
        assert program in {"pip", "pytest", "python", "ruff", "lint-imports", ".ci/run"}, command
        if command.startswith("python -m compare"):
            assert {word for word in words[2:] if word[0].isalpha()} <= {*PARTS, *APART, "all"}


@documents([path for path in DESCRIBING if blocks(path, "python")])
def test_python_runs(path, workshop, capsys):
    needs_packages()
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    names = {"logits": np.load("logits.npy"), "images": np.load("images.npy"), "model": model}
    for block in blocks(path, "python"):
        exec(compile(block, name_of(path), "exec"), {**names, "torch": torch, "intervalcert": intervalcert})


def test_the_table_of_options_says_what_is_understood():
    """Which options when: each is a command line; capitals stand for files and numbers."""
    table = (ROOT / "README.md").read_text().partition("## Which options when")[2].partition("## ")[0]
    whole = re.sub(r"` \|\n\| \| `(?=--)", " ", table)  # options that go on in the next row
    said = re.findall(r"`([a-z]+ [A-Z-][^`]+)`", whole)
    assert len(said) >= 7
    assert {options.parsed(shlex.split(command)).command for command in said} <= set(_COMMANDS)
