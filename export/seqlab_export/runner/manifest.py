"""Manifest of a bundle: `manifest.json`, validated on reading, and its seal. Standard library only."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path, PurePosixPath
from typing import NoReturn

from seqlab.files.phases import counted
from seqlab.files.regular_file import check_regular
from seqlab_export.runner.files import leads_out, sha256_of
from seqlab_export.runner.graph_file import BundleError as BundleError
from seqlab_export.runner.manifest_kinds import Reader
from seqlab_export.runner.sizes import MOST_GRAPH_BYTES, find_wrong_sizes
from seqlab_export.runner.tables import MANIFEST_FIELDS

FILE_NAME: str = MANIFEST_FIELDS["manifest_name"]
SEAL_NAME: str = MANIFEST_FIELDS["seal_name"]
FORMAT: str = MANIFEST_FIELDS["format"]
VERSION: int = MANIFEST_FIELDS["version"]
MINOR: int = MANIFEST_FIELDS["minor"]
"""A reader ignores unknown fields of a manifest whose `minor` is greater than this."""
MOST_STATE_BYTES = 2 ** MANIFEST_FIELDS["most_state_bits"]
"""Maximum size of the state of one text, in bytes."""


@dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """An input or output of a graph.

    Attributes:
        dims: integers are fixed sizes; `manifest_fields.json` explains the letters.
    """

    name: str
    dtype: str
    dims: tuple[str | int, ...]

    def shape(self, max_seq_len: int | None) -> list[str | int | None]:
        """The dimensions as declared in the graph."""
        return [max_seq_len if dim == "C" else dim for dim in self.dims]


@dataclass(frozen=True, kw_only=True)
class StateInfo(TensorInfo):
    """An entry of the state: input `state_<name>` and output `new_state_<name>` of both graphs of a decoder. An entry
    computed from a source has no output, since it never changes.

    Attributes:
        dims: dimensions of the input of `step`; "N" is "B" in `model`. "S" is 0 before the first token.
        initial: value of every element before the first token; None = the encoder's output.
    """

    initial: float | None

    def __post_init__(self) -> None:
        if "T" in self.dims or self.dims[:1] not in (("B",), ("N",)):
            raise BundleError(
                f"state entry {self.name} has dims {self.dims}, which must begin with B or N and hold no T"
            )


@dataclass(frozen=True, kw_only=True)
class GraphInfo:
    """An ONNX file, with its inputs and outputs in order."""

    file: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Origin of a bundle: the run, the commit it was trained at, and the package versions used for the export. A
    quantised bundle of a run with data has the fields of `report.ValidationLoss`: the loss of the model, its own, and
    the half-width of the 95% interval of their difference."""

    run_id: str
    commit: str
    seqlab: str
    torch: str
    onnxruntime: str
    validation_loss: float | None = None
    bundle_validation_loss: float | None = None
    validation_loss_interval: float | None = None


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything a runner needs to know; docs/bundle.md explains it. A bundle has a decoder (`model` and `step`), an
    encoder (`encoder`), or both, in which case the encoder's outputs are the decoder's first state.

    Attributes:
        target: target of the graphs.
        precision: type of all weights and, except in bf16, of the arithmetic; or, if quantised,
            type of the weights of linear layers.
        proof: extent of the proof, "full" or "reduced".
        vocab_size: number of tokens that a decoder chooses from; None = no decoder.
        max_seq_len: maximum sequence length of the decoder, in tokens; None = unlimited, or no decoder.
        max_source_len: maximum input length of the encoder; None = unlimited, or no encoder.
        seq_len: maximum sequence length in training; a target is generated up to this length.
        in_place: entries of the state that both graphs of a decoder may overwrite with their new values.
        taps: debug graph, which outputs intermediate values of the model; not needed to run it.
        guess: `model` with a further output, "guesses" (B, K, N) of N more tokens; None = the model guesses none.
        stop_ids: ids of the tokens that end generation; they are kept in the output.
        first_call: minimum number of real tokens in the first (prefill) call, if the text has as many; above 1 for
            prefix-LM masks. See `seqlab.mixer.Mixer`.
        tokenizer: folder of the tokenizer, or of the target tokenizer if there are two. None = the inputs are features.
        source_tokenizer: folder of the source tokenizer, if it is separate.
        labels: class names of an encoder, if it has classes.
        golden: file of reference inputs and outputs.
        files: sha256 of every file except this one and its seal, by path in the bundle.
    """

    min_onnxruntime: str
    target: str
    precision: str
    proof: str
    vocab_size: int | None
    max_seq_len: int | None
    max_source_len: int | None
    seq_len: int
    stop_ids: tuple[int, ...]
    first_call: int
    encoder: GraphInfo | None
    model: GraphInfo | None
    step: GraphInfo | None
    taps: GraphInfo | None
    guess: GraphInfo | None
    state: tuple[StateInfo, ...]
    in_place: tuple[str, ...]
    tokenizer: str | None
    source_tokenizer: str | None
    labels: tuple[str, ...]
    golden: str
    files: dict[str, str]
    provenance: Provenance

    def __post_init__(self) -> None:
        if (self.model is None) != (self.step is None) or (self.model is None and self.encoder is None):
            raise BundleError("it has neither an encoder nor both graphs of a decoder")
        if outside := [token for token in self.stop_ids if token >= (self.vocab_size or 0)]:
            raise BundleError(f"stop_ids has {outside[0]}, which is outside the vocabulary")
        if not re.fullmatch(r"[0-9]{1,5}\.[0-9]{1,5}[0-9.]*", self.min_onnxruntime):
            raise BundleError(f"{self.min_onnxruntime!r} is not a version of onnxruntime")
        for name in (*self.files, *filter(None, (self.tokenizer, self.source_tokenizer))):
            path = PurePosixPath(name)
            if not path.parts or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
                raise BundleError(f"{name!r} is not a path inside the bundle")
        for name, digest in self.files.items():
            if not re.fullmatch("[0-9a-f]{64}", digest):
                raise BundleError(f"the sha256 of {name} is {digest!r}")
        needed = [self.golden, *(graph.file for graph in filter(None, (*self.graphs, self.taps, self.guess)))]
        needed += [f"{place}/tokenizer.json" for place in (self.tokenizer, self.source_tokenizer) if place is not None]
        for name in needed:
            if name not in self.files:
                raise BundleError(f"it gives no sha256 of {name}")
        if self.encoder is not None and (len(self.encoder.inputs) != 2 or not self.encoder.outputs):
            raise BundleError(f"{self.encoder.file} must take an input and its mask, and give something")
        self._check_decoder()

    def _check_decoder(self) -> None:
        for graph in filter(None, (self.model, self.step)):
            logits = [output for output in graph.outputs if output.name == "logits"]
            kinds = [(output.dtype[:5], len(output.dims), output.dims[-1:]) for output in logits]
            if kinds != [("float", 3, (self.vocab_size,))]:
                raise BundleError(f"{graph.file} gives no logits of vocab_size {self.vocab_size}")
            needed = ["tokens", "pad_mask", *(["scored"] if graph is self.model else [])]
            if missing := [name for name in needed if name not in [given.name for given in graph.inputs]]:
                raise BundleError(f"{graph.file} takes no {missing[0]}")
        if self.guess is not None:
            [*outputs, guesses] = self.guess.outputs or (None,)
            if self.model is None or (*outputs,) != self.model.outputs or self.guess.inputs != self.model.inputs:
                raise BundleError(f"{self.guess.file} must have the inputs and outputs of model, and guesses")
            if (
                guesses is None
                or guesses.name != "guesses"
                or guesses.dims[:2] != ("B", "K")
                or [*map(type, guesses.dims[2:])] != [int]
            ):
                raise BundleError(f"{self.guess.file} must end with guesses (B, K, N)")
        given = {output.name for output in self.encoder.outputs} if self.encoder is not None else set()
        for entry in self.state if self.model else ():
            if self.max_seq_len is None and "C" in entry.dims:
                raise BundleError(f"state entry {entry.name} has the dimension C, but there is no max_seq_len")
            if self.encoder is None and entry.initial is None:
                raise BundleError(
                    f"state entry {entry.name} has no initial value and the bundle has no encoder to supply one"
                )
            if self.encoder is not None and f"state_{entry.name}" not in given:
                raise BundleError(f"{self.encoder.file} gives no state_{entry.name}")
        if (most := self.state_bytes()) > MOST_STATE_BYTES:
            raise BundleError(f"its state takes {most} bytes a text, at most {MOST_STATE_BYTES} are accepted")

    def state_bytes(self) -> int:
        """Size in bytes of the decoder's first state of one text, excluding entries computed from a source."""
        sizes = {"B": 1, "N": 1, "C": self.max_seq_len or 0}
        shapes = [[sizes.get(dim, 0) if isinstance(dim, str) else dim for dim in entry.dims] for entry in self.state]
        return sum(8 * prod(shape) for shape in shapes)

    @property
    def graphs(self) -> tuple[GraphInfo, ...]:
        """The graphs present in the bundle, in the order encoder, model, step."""
        return tuple(filter(None, (self.encoder, self.model, self.step)))

    @property
    def capacity(self) -> int | None:
        """Capacity of the decoder's caches in tokens; None = growing caches, or no caches."""
        return self.max_seq_len if any("C" in entry.dims for entry in self.state) else None

    def save(self, folder: Path) -> None:
        """Writes `manifest.json` and its seal, a checksum line in the format of `sha256sum -c`."""
        minor = {"minor": MINOR} if MINOR else {}
        content = {"format": FORMAT, "version": VERSION, **minor, **asdict(self)}
        (folder / FILE_NAME).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        (folder / SEAL_NAME).write_text(f"{sha256_of(folder / FILE_NAME)}  {FILE_NAME}\n", encoding="utf-8")


CLASSES = {
    "tensor": TensorInfo,
    "state": StateInfo,
    "graph": GraphInfo,
    "provenance": Provenance,
    "manifest": Manifest,
}
"""The class of each object of `manifest_fields.json`."""


def load_manifest(folder: Path) -> Manifest:
    """Reads and validates `manifest.json`, but not the files that it lists.

    Raises:
        BundleError: the manifest does not exist, or is not in the format of this version.
    """
    path = folder / FILE_NAME
    check_regular(path, "manifest")
    if not path.is_file():
        raise BundleError(f"{folder} is not a bundle: it has no {FILE_NAME}")
    if leads_out(folder, FILE_NAME):
        raise BundleError(f"{path}: it is a link out of the bundle")
    if (size := path.stat().st_size) > MOST_GRAPH_BYTES:
        raise BundleError(f"{path} has {size} bytes, a manifest has at most {MOST_GRAPH_BYTES}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
        json.dumps(content, ensure_ascii=False, allow_nan=False).encode()  # Rejects surrogates and infinities.
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise BundleError(f'{path} is not a bundle\'s manifest: it lacks "format": "{FORMAT}"')
    version = content.pop("version", None)
    if type(version) is not int or version != VERSION:
        older = "; export it again" if type(version) is int and version < VERSION else ""
        raise BundleError(f"{path} has version {version!r}, this program reads version {VERSION}{older}")
    try:
        minor = Reader(CLASSES).read({"count": 0}, content.pop("minor", 0), "the manifest.minor")
        manifest: Manifest = Reader(CLASSES, minor > MINOR).read({"manifest": {}}, content, "the manifest")
    except BundleError as error:
        raise BundleError(f"{path}: {error}") from error
    return manifest


def hash_files(folder: Path) -> dict[str, str]:
    """The sha256 of every file in a folder except the manifest and its seal, by path."""
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: sha256_of(paths[name]) for name in sorted(paths) if name not in (FILE_NAME, SEAL_NAME)}


def find_damage(folder: Path, manifest: Manifest) -> dict[str, str]:
    """Defect of each file that is unlisted or does not match the manifest or its seal; empty = no defects."""
    seal = folder / SEAL_NAME
    if not seal.is_file():
        return {SEAL_NAME: "it is missing"}
    if leads_out(folder, SEAL_NAME):
        return {SEAL_NAME: "it is a link out of the bundle"}
    with seal.open("rb") as file:
        sealed = file.read(1024).split()[:1]
    if sealed != [sha256_of(folder / FILE_NAME).encode()]:
        return {FILE_NAME: f"its sha256 is not the one in {SEAL_NAME}"}
    damage = {}
    for name in manifest.files:
        path = folder / name
        if not path.is_file():
            damage[name] = "it is missing"
        elif leads_out(folder, name):
            damage[name] = "it is a link out of the bundle"
    graphs = {graph.file for graph in (*manifest.graphs, manifest.taps, manifest.guess) if graph is not None}
    damage |= find_wrong_sizes(folder, [name for name in manifest.files if name not in damage], graphs)
    for name, digest in counted("hashes of the files", manifest.files.items()):
        if name not in damage and sha256_of(folder / name) != digest:
            damage[name] = "its sha256 is not the manifest's"
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if (path.is_symlink() or not path.is_dir()) and name not in (*manifest.files, FILE_NAME, SEAL_NAME):
            damage[name] = "the manifest does not list it"
    return damage


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")
