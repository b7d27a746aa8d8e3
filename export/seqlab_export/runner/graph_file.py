"""Inspection of an ONNX file before onnxruntime loads it. Standard library only: no onnx, no protobuf.

The numbers are the field numbers in onnx.proto.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from seqlab_export.runner.tables import table

DEEPEST = 8
"""Maximum nesting depth of subgraphs."""
_MODEL_GRAPH, _MODEL_FUNCTIONS = 7, 25
_GRAPH_NODE, _GRAPH_INITIALIZER = 1, 5
_NODE_OPERATOR, _NODE_ATTRIBUTE, _NODE_DOMAIN = 4, 5, 7
_NODE_TEXTS = (_NODE_OPERATOR, _NODE_DOMAIN)
_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS, _ATTRIBUTE_TENSORS = 6, 11, (5, 10)
_TENSOR_EXTERNAL, _ENTRY_KEY, _ENTRY_VALUE = 13, 1, 2
_MALFORMED = "it is not what protobuf writes"


class BundleError(ValueError):
    """A folder is not a bundle, or not a complete one."""


@cache
def operators(target: str) -> frozenset[str]:
    """Operators allowed in graphs of a target; operators of other domains are written `domain::Operator`."""
    return frozenset(table("operators")["every target"]) | frozenset(table("operators")[target])


def check_graph(path: Path, target: str) -> None:
    """Rejects a graph that might not terminate: one with operators that the target does not allow, with functions, or
    with subgraphs other than a Scan's, whose number of iterations is the length of its input.

    Raises:
        BundleError: the graph is rejected (the message names the operator), or the file is not an ONNX graph.
    """
    with _naming(path):
        for operator, has_graph in _nodes(path):
            if operator not in operators(target):
                raise BundleError(f"it has the operator {operator}, which no graph of target {target} has")
            if has_graph and operator != "Scan":
                raise BundleError(f"it has a {operator} with a graph of its own, which only Scan has")


def check_for_cuda(path: Path, precision: str) -> None:
    """Rejects a graph with a product or attention that onnxruntime computes on the CPU whatever the provider, between
    copies from and to the device.

    Raises:
        ValueError: the graph is rejected; the message names the operator.
    """
    lacks = [*table("operators")["not on CUDA"]]
    if precision != "fp16":
        lacks += table("operators")["on CUDA in fp16"]
    for operator, _ in _nodes(path):
        if operator in lacks:
            raise ValueError(
                f"{path} has {operator}, which CUDA does not compute in {precision}; export the model with --target "
                "cuda-graph, in a precision other than int8"
            )


def end_of_weights(path: Path) -> int:
    """Offset in bytes of the end of a graph's weights in their external file.

    Raises:
        BundleError: the file is not an ONNX graph.
    """
    end = 0
    with _naming(path):
        for kind, tensor, _ in _walk(path):
            if kind == "tensor":
                entries = [dict(_fields(entry)) for _, entry in _fields(tensor, [_TENSOR_EXTERNAL])]
                said = {bytes(entry.get(_ENTRY_KEY, b"")): bytes(entry.get(_ENTRY_VALUE, b"")) for entry in entries}
                numbers = [said.get(name, b"0") for name in (b"offset", b"length")]
                if not all(number.isdigit() and len(number) <= 18 for number in numbers):
                    raise BundleError(_MALFORMED)
                end = max(end, sum(map(int, numbers)))
    return end


def _nodes(path: Path) -> Iterator[tuple[str, bool]]:
    """The operator of each node of a file, at any depth, and whether it contains a subgraph."""
    for kind, node, has_graph in _walk(path):
        if kind == "node":
            texts = {number: bytes(text).decode("utf-8", "replace") for number, text in _fields(node, _NODE_TEXTS)}
            domain, name = texts.get(_NODE_DOMAIN, ""), texts.get(_NODE_OPERATOR, "")
            yield name if domain in ("", "ai.onnx") else f"{domain}::{name}", has_graph


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except BundleError as error:
        raise BundleError(f"{path} is no graph of a bundle: {error}") from None


def _walk(path: Path) -> Iterator[tuple[str, memoryview, bool]]:
    """Each node and tensor of a file, at any depth; for a node, the flag is True if it contains a subgraph."""
    for number, value in _fields(memoryview(path.read_bytes())):
        if number == _MODEL_FUNCTIONS:
            raise BundleError("it has functions of its own, which no graph of a bundle has")
        if number == _MODEL_GRAPH:
            yield from _in_graph(value, 1)


def _in_graph(graph: memoryview, depth: int) -> Iterator[tuple[str, memoryview, bool]]:
    if depth > DEEPEST:
        raise BundleError(f"it is nested deeper than {DEEPEST} graphs")
    for number, value in _fields(graph):
        if number == _GRAPH_INITIALIZER:
            yield "tensor", value, False
        if number != _GRAPH_NODE:
            continue
        inner = [part for _, attribute in _fields(value, [_NODE_ATTRIBUTE]) for part in _fields(attribute)]
        graphs = [part for number, part in inner if number in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS)]
        yield "node", value, bool(graphs)
        yield from (("tensor", part, False) for number, part in inner if number in _ATTRIBUTE_TENSORS)
        for part in graphs:
            yield from _in_graph(part, depth + 1)


def _fields(message: memoryview, numbers: Collection[int] | None = None) -> Iterator[tuple[int, memoryview]]:
    """Length-delimited fields of a message: texts, messages, lists; only those with the given field numbers, if any."""
    place = 0
    while place < len(message):
        tag, place = _number(message, place)
        kind, number = tag & 7, (tag & 0xFFFFFFFF) >> 3
        if kind == 0:
            _, place = _number(message, place)
            continue
        size = {1: 8, 5: 4}.get(kind, 0)
        if kind == 2:
            size, place = _number(message, place)
        if kind not in (1, 2, 5) or place + size > len(message):
            raise BundleError(_MALFORMED)
        if kind == 2 and (numbers is None or number in numbers):
            yield number, message[place : place + size]
        place += size


def _number(message: memoryview, place: int) -> tuple[int, int]:
    """A varint (7 bits per byte), and the offset of its end."""
    found = 0
    for shift in range(0, 70, 7):
        if place >= len(message):
            break
        byte = message[place]
        found, place = found | (byte & 127) << shift, place + 1
        if byte < 128:
            return found, place
    raise BundleError(_MALFORMED)
