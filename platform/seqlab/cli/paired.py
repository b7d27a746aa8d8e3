"""`seqlab compare A B --paired`: paired comparison of models on test examples. Missing predictions are computed."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seqlab.comparison.paired import Model
    from seqlab.tracking.runs import TrackedRun


def compare_paired(names: Sequence[str], *, experiment: str | None, trust: list[str]) -> None:
    """Prints how the first model differs from each of the others.

    Raises:
        ValueError: there are fewer than two models, a name is unknown, or the test examples are not the same.
    """
    from rich.console import Console

    from seqlab.comparison.fair import kind_of, tokenizer_of
    from seqlab.comparison.paired import compare_pairs, table_of
    from seqlab.comparison.seeds import runs_named
    from seqlab.tracking.runs import search
    from seqlab.tracking.store import Store

    if len(names) < 2:
        raise ValueError(
            "--paired compares a model with others; name two rows or runs, as in compare gru lstm --paired"
        )
    store = Store()
    store.check_exists()
    found = search(store, experiment=experiment)
    models = [(name, runs_named(name, found, store, experiment)) for name in names]
    first = models[0][1][0]
    for name, runs in models:
        _check_seeds(name, runs)
        for run in runs:
            if (*kind_of(run), tokenizer_of(run)) != (*kind_of(first), tokenizer_of(first)):
                raise ValueError(
                    f"{run.name} of {name} and {first.name} differ in task, data or tokenizer, so their rows are not "
                    "the same examples"
                )
    tokenize = first.params.get("model.init_args.bleu_tokenize", "13a")
    with_scores = [_model(name, runs, tokenize, trust) for name, runs in models]
    pairs = compare_pairs(with_scores[0], with_scores[1:])
    console = Console()
    console.print(table_of(pairs))
    console.print()
    for pair in pairs:
        print(pair.sentence)
    if any(min(len(pair.first.seeds), len(pair.second.seeds)) == 1 for pair in pairs):
        print("With one seed the interval covers only other examples: the effect of another seed is unknown.")


def _check_seeds(name: str, runs: Sequence[TrackedRun]) -> None:
    """Checks that the runs of a model have different seeds. Prints a note if they also differ in other options.

    Raises:
        ValueError: two runs have the same seed.
    """
    from seqlab.comparison.seeds import config_of, seed_of

    for place, run in enumerate(runs):
        for other in runs[:place]:
            if run.id == other.id or (seed_of(run) or run.id) == seed_of(other):
                raise ValueError(
                    f"{name}: {other.name} and {run.name} have the same seed; name runs of different seeds"
                )
        if more := sorted({option for option, _ in config_of(run) ^ config_of(runs[0])}):
            print(f"{name}: {run.name} differs from {runs[0].name} in more than its seed: {', '.join(more)}")


def _model(name: str, runs: Sequence[TrackedRun], tokenize: str, trust: list[str]) -> Model:
    from seqlab.comparison.paired import Model
    from seqlab.comparison.scores import read_scores
    from seqlab.comparison.seeds import seed_of

    scores = [read_scores(_predictions(run, trust), run.name, tokenize) for run in runs]
    return Model(name, [seed_of(run) for run in runs], scores)


def _predictions(run: TrackedRun, trust: list[str]) -> Path:
    """Prediction file of a run's best checkpoint, created in the cache if missing."""
    from seqlab.cli.fit import evaluate
    from seqlab.comparison.examples import kept_predictions
    from seqlab.trained.load import checkpoint_of

    checkpoint, _ = checkpoint_of(run.id)
    with checkpoint.open("rb") as file:
        weights = hashlib.file_digest(file, "sha256").hexdigest()
    path = kept_predictions(run) / f"{weights[:32]}.jsonl"
    if path.is_file():
        return path
    _check_data(run, trust)
    print(f"{run.name} has no predictions of its test split; making them", file=sys.stderr)
    path.parent.mkdir(parents=True, exist_ok=True)
    with redirect_stdout(sys.stderr):
        code = evaluate(argparse.Namespace(verb="predict", target=run.id, trust=trust, overrides=[f"--out={path}"]))
    if code != 0 or not path.is_file():
        raise ValueError(f"the predictions of {run.name} could not be made; `seqlab predict {run.id[:8]}` says why")
    return path


def _check_data(run: TrackedRun, trust: list[str]) -> None:
    """Checks that the data have not changed since the fit, because other runs may have predictions of the old data.

    Raises:
        ValueError: the data have changed.
    """
    from seqlab.config.configs import build_data
    from seqlab.config.trust import only_trusted
    from seqlab.tracking.writes import DATASET_TAG, dataset_tag
    from seqlab.trained.load import stored_run

    stored, _ = stored_run(run.id, trust=trust)
    with only_trusted(trust):
        data = build_data(stored["config"])
        now = dataset_tag(data.describe()) if hasattr(data, "describe") else run.tags.get(DATASET_TAG)
    if now != run.tags.get(DATASET_TAG, now):
        raise ValueError(
            f"the data of {run.name} have changed since it was fitted: they were {run.tags[DATASET_TAG]}, and are now "
            f"{now}; new predictions would be of other examples"
        )
