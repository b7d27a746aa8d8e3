"""Shard storage for torch.distributed.checkpoint (DCP), with a sha256 for each file and without pickled metadata.

Plain values replace DCP's pickled metadata: "folder", the folder's name; "files", the sha256 of each file by name; and
"parts", a list for each tensor by name: "offset" and "size" in the tensor, and "file", "start" and "length" on disk.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from seqlab.checkpoints.checksummed_file import Hashing, check_parts, pickle_of, sync_folder
from seqlab.files.atomic import writing
from seqlab.files.plain_values import check_pickle


def write(
    tensors: Mapping[str, Tensor],
    folder: Path,
    seal: Callable[[dict[str, Any]], None],
    whole: str,
    group: dist.ProcessGroup,
) -> None:
    """Writes each rank's shards; rank 0 then seals the index. Every rank must call it.

    Args:
        seal: writes the index, on rank 0.
        whole: state of the previous file, for error messages; see `seqlab.files.atomic.writing`.

    Raises:
        CannotWriteError: a rank could not write. All ranks raise the same error.
    """
    with _as_of_one_rank():
        save(dict(tensors), storage_writer=_Writer(folder, seal, whole), process_group=group)


def read(
    tensors: Mapping[str, Tensor], folder: Path, shards: dict[str, Any], group: dist.ProcessGroup | None = None
) -> None:
    """Fills tensors of any sharding from shards. If a group is given, every rank of it must call this."""
    with _as_of_one_rank(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load(dict(tensors), storage_reader=_Reader(folder, shards, tensors), process_group=group, no_dist=group is None)


class _Writer(FileSystemWriter):
    def __init__(self, folder: Path, seal: Callable[[dict[str, Any]], None], whole: str) -> None:
        super().__init__(folder)
        self.fs = self._files = _HashedFiles()
        self._folder, self._seal, self._whole = folder, seal, whole

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        with writing(self._folder, self._whole):
            prepared: SavePlan = super().prepare_local_plan(plan)
        return prepared

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        with writing(self._folder, self._whole):
            written = super().write_data(plan, planner).wait()
            sync_folder(self._folder)
        digests = self._files.digests
        hashed: Future[list[WriteResult]] = Future()
        hashed.set_result(
            [replace(one, storage_data=(one.storage_data, digests[one.storage_data.relative_path])) for one in written]
        )
        return hashed

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Seals the index, on rank 0, after all ranks have written."""
        files: dict[str, str] = {}
        parts: dict[str, list[dict[str, Any]]] = {}
        for written in (written for of_rank in results for written in of_rank):
            info, files[info.relative_path] = written.storage_data
            tensor = metadata.state_dict_metadata[written.index.fqn]
            assert isinstance(tensor, TensorStorageMetadata)
            size = next(chunk.sizes for chunk in tensor.chunks if chunk.offsets == written.index.offset)
            place = {"offset": list(written.index.offset or ()), "size": list(size)}
            where = {"file": info.relative_path, "start": info.offset, "length": info.length}
            parts.setdefault(written.index.fqn, []).append(place | where)
        sync_folder(self._folder.parent)  # makes the entry of the new folder durable
        self._seal({"folder": self._folder.name, "files": files, "parts": parts})


class _Reader(FileSystemReader):
    def __init__(self, folder: Path, shards: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
        super().__init__(folder)
        self._shards, self._tensors = shards, tensors

    def _slice_file(self, file: Any, sinfo: _StorageInfo) -> IO[bytes]:
        part = io.BytesIO(super()._slice_file(file, sinfo).read())  # torch's view cannot seek to its end
        check_parts(part)
        check_pickle(pickle_of(part))
        return part

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        known, places = {}, {}
        for name, tensor in self._tensors.items():
            parts = self._shards["parts"][name]
            chunks = [ChunkStorageMetadata(torch.Size(part["offset"]), torch.Size(part["size"])) for part in parts]
            known[name] = TensorStorageMetadata(TensorProperties(dtype=tensor.dtype), tensor.shape, chunks)
            for chunk, part in zip(chunks, parts, strict=True):
                info = _StorageInfo(Path(part["file"]).name, part["start"], part["length"])
                places[MetadataIndex(name, chunk.offsets)] = info
        return Metadata(known, storage_data=places)  # type: ignore[arg-type]


class _HashedFiles(FileSystem):
    """File system that records the sha256 of each file written, by file name."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        with super().create_stream(path, mode) as stream:
            hashing = Hashing(stream)  # type: ignore[arg-type]
            yield hashing
            self.digests[Path(path).name] = hashing.hexdigest()


@contextmanager
def _as_of_one_rank() -> Iterator[None]:
    """Context in which all ranks raise the error of the lowest rank that failed."""
    try:
        yield
    except CheckpointException as error:
        _, (first, _) = min(error.failures.items())
        raise first from error
