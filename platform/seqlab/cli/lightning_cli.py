"""seqlab's LightningCLI: short configs, tracked runs, exact resume, one-sentence errors."""

from __future__ import annotations

import os
import sys
import warnings
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import Any

import lightning as L
import yaml
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch.callbacks import Callback, ProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.utilities import rank_zero_only

from seqlab.budgets.match import said
from seqlab.callbacks.beside import Monitored, own_folder
from seqlab.callbacks.checkpoint import check_layout
from seqlab.callbacks.crash_report import CrashReport
from seqlab.callbacks.evaluation import what_is_left
from seqlab.callbacks.finders import FINDERS, QUIETLY, search
from seqlab.callbacks.max_time import MaxTime
from seqlab.callbacks.progress import FitProgress
from seqlab.callbacks.rank_watchdog import RankWatchdog
from seqlab.callbacks.restored_state import RestoredState, saying_what_is_wrong
from seqlab.callbacks.resume_consistency import ResumeConsistency
from seqlab.callbacks.speed import Speed
from seqlab.checkpoints.io import AtomicCheckpointIO, read_checkpoint
from seqlab.cli.adapted import check_lora
from seqlab.cli.continued import check_findable, only_unfinished, say_finished
from seqlab.cli.fit_callbacks import fit_callbacks
from seqlab.cli.lightning_parts import check_restores, kept
from seqlab.cli.matched import matched
from seqlab.cli.narrowed import scale_by_width
from seqlab.config.configs import LINKS, as_list, import_blocks
from seqlab.config.half_precision import HalfInputs
from seqlab.config.nested_options import keep_nested_values
from seqlab.config.options import (
    check_precision,
    check_tokenizers,
    check_trainer,
    numbers_before_shares,
    options,
    tell_whole_numbers,
)
from seqlab.config.parser import Parser
from seqlab.config.stored_config import check_opens, check_reads_back, without_watchers
from seqlab.nn.lora import adapt
from seqlab.nn.stack import forget_activations
from seqlab.parallel import SpreadStrategy, meet_anew, set_tensor_parallel
from seqlab.tasks import Distillation
from seqlab.tasks.task import check_told
from seqlab.tracking.job import run_of_job
from seqlab.tracking.logger import RunLogger
from seqlab.tracking.params import config_hash
from seqlab.tracking.runs import find_run
from seqlab.tracking.writes import COSTS_TAG, MATCHED_TAG
from seqlab.trained.same_vocabulary import check_vocabulary, give_path
from seqlab.trained.transfer import begin_encoder_with, begin_with
from seqlab.trained.word_vectors import begin_words_with


class ShortParser(Parser, LightningArgumentParser):
    """Parser of the command line, of which an error becomes one sentence."""


class SeqlabCLI(LightningCLI):
    """Runs a Lightning verb with seqlab's tracking, checkpoints and exact resume.

    Args:
        verb: fit, validate, test or predict.
        args: command-line arguments after the verb.
        run_id: run to continue from its last checkpoint; None = a new run.
    """

    def __init__(self, verb: str, args: list[str], *, run_id: str | None = None) -> None:
        self.verb = verb
        self.run_id = run_id
        self.tags: dict[str, str] = {}
        import_blocks()
        numbers_before_shares()
        keep_nested_values()
        super().__init__(
            L.LightningModule,
            L.LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            save_config_callback=None,
            seed_everything_default=0,
            parser_class=ShortParser,
            parser_kwargs={"parser_mode": "seqlab"},
            load_from_checkpoint_support=False,
            auto_configure_optimizers=False,
            args=[verb, *args],
        )

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        return {self.verb: LightningCLI.subcommands()[self.verb]}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        for option in options(self.verb):
            parser.add_argument(f"--{option.name}", type=option.type, default=option.default, help=option.help)
        parser.set_defaults(
            {
                # The data module distributes the windows over the ranks itself.
                "trainer.use_distributed_sampler": False,
                "trainer.log_every_n_steps": 10,
            }
        )
        for name in LINKS:
            parser.link_arguments(
                f"data.{name}", f"model.init_args.{name}", partial(_told, name), apply_on="instantiate"
            )

    def _parse_ckpt_path(self) -> None:
        """Does nothing. Lightning would override the command line by the checkpoint's config and import its classes."""

    def _dump_config(self) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"\s*Unable to serialize")  # refused by `check_reads_back`
            text = self.parser.dump(self.config, skip_link_targets=False, skip_unset=False, skip_validation=True)
        self.config_dump = without_watchers(yaml.safe_load(text)[self.verb])

    def before_instantiate_classes(self) -> None:
        options = self.config[self.verb]
        tell_whole_numbers(options)
        if self.verb == "fit":
            self._find_teacher(options)
        self._dump_config()
        self.left = what_is_left(self.verb, self.config_dump)
        if self.verb == "fit":
            check_reads_back(self._parser(self.verb), self.config_dump, options)
            check_opens(self.config_dump)
            if self.run_id is None:  # a continued run has stored the result
                self._match(options)
                if options.resume is not None:
                    self._continue_job(options)
        if options.ckpt_path is not None and not os.path.isfile(options.ckpt_path):
            self._find_checkpoint(options)
        self._find_tokenizer(options)

    def _find_teacher(self, options: Any) -> None:
        """Replaces the teacher of a distillation by the id of its run, which stays unique when the name does not."""
        if issubclass(resolve_name(options.model.class_path), Distillation):
            given = options.model.init_args
            given.teacher = given.teacher if os.path.isfile(given.teacher) else find_run(given.teacher).id

    def _find_checkpoint(self, options: Any) -> None:
        """Replaces a run named by `--ckpt_path` by the path of its checkpoint."""
        if self.verb == "fit" and options.ckpt_path == "last":
            self.run_id = only_unfinished(options.experiment, self.config_dump)
        run = find_run(self.run_id or options.ckpt_path)
        checkpoint = run.last_checkpoint if self.verb == "fit" else run.checkpoint
        if checkpoint is None:
            raise ValueError(f"--ckpt_path {options.ckpt_path}: run {run.name} ({run.id}) has no checkpoint")
        options.ckpt_path = str(checkpoint)

    def _find_tokenizer(self, options: Any) -> None:
        """Sets the path of a stored tokenizer, if missing, from the run that the fit continues, starts from or learns
        from."""
        if "data" not in options or "tokenizer" not in options.data.get("init_args", {}):
            return
        checkpoint = options.ckpt_path
        runs = [options.get(name) for name in ("init_from", "encoder_from", "model.init_args.teacher")]
        for run in runs if checkpoint is None else ():
            checkpoint = checkpoint or (run and find_run(run).checkpoint)
        if checkpoint:
            give_path(options.data.init_args.tokenizer, Path(checkpoint))

    def _match(self, options: Any) -> None:
        """Solves the model size for a budget and sets it in the config."""
        if (found := matched(options, self.config_dump)) is not None:
            options[".".join(found.path)] = found.number
            self._set_seed()
            costs = said(found, options.match, options.to)
            self.tags = {MATCHED_TAG: f"{options.match} {options.to:.12g}", COSTS_TAG: costs}
            rank_zero_only(print)(costs, file=sys.stderr)

    def _continue_job(self, options: Any) -> None:
        """Finds the run of the job, and its checkpoint if it exists."""
        check_findable(options)
        run = run_of_job(options.run_name, options.experiment, config_hash(self.config_dump))
        if run is None:
            return
        if run.status == "FINISHED":
            say_finished(run)
            raise SystemExit
        self.run_id, options.ckpt_path = run.id, run.last_checkpoint and str(run.last_checkpoint)

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        options = self.config_init[self.verb]
        given = options.trainer
        check_trainer(given)
        speed = Speed()
        theirs = as_list(given.callbacks)
        bar = given.enable_progress_bar is not False and not given.barebones
        own_bar = bar and not any(isinstance(one, ProgressBar) for one in theirs)
        callbacks: list[Callback] = [FitProgress(speed)] if own_bar else []
        if self.verb == "fit":
            check_restores(theirs)
            # First, before anything is written to a run; `RankWatchdog` must report before `CrashReport`.
            callbacks += [ResumeConsistency(options.ckpt_path), RankWatchdog(options.timeout)]
        if given.max_time is not None:
            callbacks.append(MaxTime(given.max_time))
            kwargs["max_time"] = None
        callbacks.append(CrashReport())
        if self.verb == "fit":
            callbacks.append(own_folder(theirs, as_list(self.config_dump["trainer"].get("callbacks"))))
            callbacks += [Monitored(theirs, self.model), *fit_callbacks(options, self.config_dump, speed, self.tags)]
            if given.logger is not False and not given.barebones:
                ours = RunLogger(options.experiment, name=options.run_name, run_id=self.run_id)
                kwargs["logger"] = [ours, *(one for one in as_list(given.logger) if one is not True)]
        elif given.logger in (None, True):
            kwargs["logger"] = False
        if given.barebones:
            kwargs["log_every_n_steps"] = None
        callbacks += self.left
        check = self._check_data if self.verb == "fit" else None
        plugins = [*as_list(given.plugins), AtomicCheckpointIO(check, in_background=options.checkpoint_async)]
        if given.precision in ("bf16-true", "16-true"):
            plugins.append(HalfInputs(given.precision))
            kwargs["precision"] = None
        try:
            trainer = super().instantiate_trainer(
                callbacks=[RestoredState(), *kept(theirs, fits=self.verb == "fit", bar=bar), *callbacks],
                plugins=plugins,
                enable_model_summary=False,
                **kwargs,
            )
        except TypeError as error:  # such as a wrong number of devices
            raise ValueError(f"trainer: {error}") from error
        set_tensor_parallel(trainer, options.tp)
        check_precision(trainer, given.precision)
        cluster = trainer._accelerator_connector.cluster_environment
        if isinstance(cluster, SLURMEnvironment):
            cluster.auto_requeue = False  # it would write and load a separate checkpoint
        return trainer

    def _run_subcommand(self, subcommand: str) -> None:
        if isinstance(self.trainer.strategy, SpreadStrategy):
            self.trainer.strategy.check(self.model, fits=subcommand == "fit")
        if self.config[subcommand].ckpt_path is None:
            # A new fit: with an OnExceptionCheckpoint, Lightning would search for the checkpoint of another fit.
            self.trainer._checkpoint_connector._user_managed = True
            if subcommand != "fit":
                untrained = f"seqlab {subcommand}: the model is untrained; give a RUN or --ckpt_path"
                rank_zero_only(print)(untrained, file=sys.stderr)
        if (lora := self.config_init[subcommand].lora) is not None:
            check_lora(self.config[subcommand], self.trainer.strategy)
            if subcommand != "fit":
                adapt(self.model, lora)
        with saying_what_is_wrong(self.config[subcommand].ckpt_path):
            super()._run_subcommand(subcommand)

    def before_fit(self) -> None:
        options = self.config["fit"]
        meet_anew(self.trainer)
        check_tokenizers(self.datamodule)
        if options.ckpt_path is not None:  # refused before a run or ranks are started
            stored = read_checkpoint(options.ckpt_path, weights=False)
            with saying_what_is_wrong(options.ckpt_path, anywhere=True):
                check_layout(stored, self.trainer)
        if options.mup:
            scale_by_width(self.model, self.datamodule, self.config_dump, options.mup)
        # Not when resuming: a checkpoint has all weights, and the run or the file may no longer exist.
        if options.init_from is not None and options.ckpt_path is None:
            begin_with(self.model, options.init_from)
        if options.encoder_from is not None:
            begin_encoder_with(self.model, options.encoder_from, freeze=options.freeze_encoder)
        if options.word_vectors is not None and options.ckpt_path is None:
            found = begin_words_with(self.model, self.datamodule, options.word_vectors)
            if self.trainer.is_global_zero:
                print(f"word vectors: {found}", file=sys.stderr)
        if options.lora is not None:
            adapt(self.model, self.config_init["fit"].lora)
        self._find(options.ckpt_path)
        if options.checkpoint_activations:
            forget_activations(self.model.model)
        if options.compile:
            # In place, so that checkpoints keep their keys. A whole LightningModule breaks at `self.log` (torch 2.13).
            self.model.model.compile()

    def _find(self, checkpoint: str | None) -> None:
        """Runs the finders before a new fit, or restores their results if the fit continues."""
        callbacks = as_list(self.config_init["fit"].trainer.callbacks)
        finders = [one for one in callbacks if isinstance(one, FINDERS)]
        if not finders:
            return
        stored = None if checkpoint is None else read_checkpoint(checkpoint, weights=False)["seqlab"]["config"]
        with TemporaryDirectory() as folder:
            trainer = partial(self._trial_trainer, folder)
            for found in search(finders, trainer, self.model, self.datamodule, self.config_dump, stored):
                print(found, file=sys.stderr)
        names = zip(as_list(self.config_dump["trainer"]["callbacks"]), callbacks, strict=True)
        self.config_dump["trainer"]["callbacks"] = [name for name, one in names if one not in finders] or None

    def _trial_trainer(self, folder: str, finder: Callback) -> L.Trainer:
        return super().instantiate_trainer(callbacks=[finder], default_root_dir=folder, **QUIETLY)

    def _check_data(self, checkpoint: dict[str, Any]) -> None:
        check_vocabulary(checkpoint.get("seqlab", {}), self.datamodule)


def _told(name: str, number: Any) -> Any:
    """Checks a number set by the data module, because jsonargparse's error would not mention its name."""
    if number is not None:
        check_told("the task", **{name: number})
    return number
