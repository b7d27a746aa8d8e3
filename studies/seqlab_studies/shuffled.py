"""Effect of shuffled words on trained models."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from seqlab.config.configs import build_data
from seqlab.study.arms import Arm
from seqlab.study.charts import styled
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tasks.text_scores import score_texts
from seqlab.tracking.runs import TrackedRun
from seqlab.trained.load import LoadedRun, load_run
from seqlab_studies.lib.corpora import PAIRS, corpus, needed
from seqlab_studies.lib.translations import write

if TYPE_CHECKING:
    from altair import TopLevelMixin

TRAIN, DEV, TEXT = "sst2/stsa.binary.train", "sst2/stsa.binary.dev", "tiny-shakespeare/input.txt"
CONTEXT = 24
"""Words before the one that is predicted."""
KEPT = Rule(
    "what is left of what the words tell when they are shuffled, over all of it (0: no more than of another text; by "
    "chance, above 1)",
    low=0.9,
    beyond=0.1,
)
CLASSIFY = ("--config=classify/transformer", "--model.model.encoder.d_model=64", "--trainer.max_epochs=3")
SENTIMENT, READER, BAG = "sentiment, Transformer", "sentiment, GRU both ways", "sentiment, bag of words"
TRANSLATOR = "translation, Transformer"
WRITER, RECURRENT = "next word, Transformer", "next word, GRU"
OTHER = "sentiment, the words of another text"


class Shuffled(Study):
    name = "shuffled"
    question = "Does a trained Transformer care about the order of the words?"
    matched = (
        "Sentiment: sentences of SST-2, the models' own widths, accuracy on the development set. Next word: tiny "
        "Shakespeare by words, of those that come 20 times, two layers of 64 channels, loss of the word after "
        f"{CONTEXT} others in the last tenth. Translation: short sentences of Tatoeba, English to German, two "
        "layers of 64 channels on either side, BLEU of 500 held out; only the source is shuffled. "
        "The same model reads each text as it is, with its words shuffled, and with the words of another text; the "
        "share is (shuffled - another) / (as it is - another). Each model has its best of three learning rates."
    )
    why = (
        "What a task needs of the order decides, more than the model. Which words stand in a review tells most of its "
        "sentiment, so that training rewards little else; what comes next depends on the last words in their order. A "
        "translation keeps 0.48: the words to write are known, and not who does what to whom."
    )
    change = "A task whose answer is in the order: who did it to whom, the scope of a negation, a language model."
    claims = (
        Claim(
            "ignores",
            "Even with positions a trained Transformer largely ignores the order of the words.",
            "L2, claim 17",
            (SENTIMENT, TRANSLATOR, WRITER),
            KEPT,
            (
                Control(BAG, KEPT, True, "The mean of the embeddings has no order."),
                Control(OTHER, KEPT, False, "They tell nothing of this text."),
            ),
        ),
        Claim(
            "recurrence",
            "A recurrence, which reads one word after the other, does not ignore it.",
            "L2 and L4, claim 14",
            (READER, RECURRENT),
            Rule(KEPT.quantity, high=0.8, beyond=0.1),
            (
                Control(OTHER, Rule(KEPT.quantity, high=0.8, beyond=0.1), True, "They tell nothing of this text."),
                Control(BAG, Rule(KEPT.quantity, high=0.8, beyond=0.1), False, "The mean has no order."),
            ),
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        if scale == "smoke" or needed(TRAIN, DEV, TEXT, *PAIRS):
            return ()
        train, dev, text, *pairs = map(corpus, (TRAIN, DEV, TEXT, *PAIRS))
        labelled = (f"--data.train={train}", f"--data.val={dev}", "--data.tokenizer.min_count=2")
        words = (
            *("--config=lm/attention", f"--data.path={text}", "--data.tokenizer=WordTokenizer"),
            *("--data.tokenizer.min_count=20", "--data.seq_len=32", "--data.batch_size=32", "--model.warmup_steps=30"),
            *("--model.model.d_model=64", "--model.model.num_layers=2", "--model.model.dropout=0.1"),
            *(f"--trainer.max_steps={600 if scale == 'cpu' else 6000}", "--trainer.val_check_interval=200"),
        )
        steps = 800 if scale == "cpu" else 8000
        translate = (
            "--config=translate/transformer",
            *(f"--data.{split}={path}" for split, path in zip(("train", "val", "test"), pairs, strict=True)),
            *("--data.source_tokenizer.min_count=2", "--data.target_tokenizer.min_count=2"),
            *("--model.model.encoder.d_model=64", "--model.warmup_steps=100", "--trainer.callbacks=null"),
            *(f"--trainer.max_steps={steps}", f"--trainer.val_check_interval={steps}"),
        )
        gru = ("--config=classify/bigru", "--model.model.encoder.d_model=64", "--trainer.max_epochs=3")
        rates = (5e-4, 1e-3, 2e-3)
        return (
            Arm(SENTIMENT, (*CLASSIFY, *labelled), rates),
            Arm(READER, (*gru, *labelled), (1e-3, 2e-3, 4e-3)),
            Arm(BAG, ("--config=classify/bag-of-words", *labelled), (3e-3, 1e-2, 3e-2)),
            Arm(TRANSLATOR, translate, (1e-3, 2e-3, 4e-3)),
            Arm(WRITER, words, (2e-3, 4e-3, 8e-3)),
            Arm(
                RECURRENT,
                (*words, "--model.model.mixer=GRU", "--model.model.positions=NoPositions"),
                (2e-3, 4e-3, 8e-3),
            ),
        )

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        if not runs:
            missing = needed(TRAIN, DEV, TEXT, *PAIRS) or "no model is trained at smoke scale"
            return Measured({}, [], {claim.key: missing for claim in self.claims})
        draw, found = random.Random(seed), dict[str, dict[str, float]]()
        for name in (SENTIMENT, READER, BAG):
            found[name] = sentiment(load_run(runs[name].id), seed, draw)
        found[TRANSLATOR] = translation(load_run(runs[TRANSLATOR].id), seed, draw)
        for name in (WRITER, RECURRENT):
            found[name] = next_word(load_run(runs[name].id), _text(), draw)
        values = {name: share(of["shuffled"], of["another"], of["as it is"]) for name, of in found.items()}
        values[OTHER] = share(found[SENTIMENT]["a third"], found[SENTIMENT]["another"], found[SENTIMENT]["as it is"])
        rows = [
            {"model": name, "words": words, "value": value, "share": values[name]}
            for name, of in found.items()
            for words, value in of.items()
            if words != "a third"
        ]
        return Measured(values, rows)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        units = {
            "sentiment": "share that is right",
            "translation": "BLEU",
            "next word": "nats a word, less is better",
        }
        names = {*claim.cases, *(control.case for control in claim.controls)}
        rows = [
            row | {"of": f"{row['model']}: {units[row['model'].partition(',')[0]]}"}
            for row in points
            if row["model"] in names
        ]
        base = alt.Chart().encode(
            x=alt.X("value:Q", title=None, scale=alt.Scale(zero=False)),
            y=alt.Y("words:N", title=None, sort=["as it is", "shuffled", "another"]),
            shape=alt.Shape("words:N", title=None, legend=None),
            color=alt.Color("words:N", title=None, legend=None),
            tooltip=["model:N", "words:N", "seed:O", "value:Q", "share:Q"],
        )
        return styled(
            alt.layer(base.mark_point(filled=True, size=80), data=alt.InlineData(values=rows))
            .properties(width=220, height=alt.Step(18))
            .facet(facet=alt.Facet("of:N", title=None, header=alt.Header(labelAnchor="start")), columns=1)
            .resolve_scale(x="independent")
        )


def share(shuffled: float, another: float, own: float) -> float:
    """Share that shuffling leaves of what a text's own words give over another's."""
    return (shuffled - another) / (own - another)


def read(loaded: LoadedRun, split: str, order: str, seed: int) -> tuple[Any, Any]:
    """A run's data with the words in this order, and all rows of a split as one batch."""
    data = loaded.config["data"]
    options = data["init_args"] | {"word_order": order, "seed": seed}
    made = build_data({"data": data | {"init_args": options}})
    rows = made.rows(split)
    return made, rows.read(np.arange(len(rows)))


def sentiment(loaded: LoadedRun, seed: int, draw: random.Random) -> dict[str, float]:
    """Accuracy on the validation split, by what the model reads of each text."""
    logits = {}
    for order in ("natural", "shuffled"):
        _, (inputs, mask, targets, _) = read(loaded, "val", order, seed)
        logits[order] = in_parts(partial(_classes, loaded.model, inputs, mask), len(inputs))

    def accuracy(logits: Tensor) -> float:
        return float((logits.argmax(-1) == targets).double().mean())

    anybody = range(len(targets))
    return {
        "as it is": accuracy(logits["natural"]),
        "shuffled": accuracy(logits["shuffled"]),
        "another": accuracy(logits["natural"][draw.sample(anybody, len(anybody))]),
        "a third": accuracy(logits["natural"][draw.sample(anybody, len(anybody))]),
    }


def _classes(model: Any, inputs: Tensor, mask: Tensor, some: slice) -> Any:
    return model(inputs[some], pad_mask=mask[some])


def translation(loaded: LoadedRun, seed: int, draw: random.Random) -> dict[str, float]:
    """BLEU on the test split, by what the model reads of each source."""
    wrote = {}
    for order in ("natural", "shuffled"):
        data, batch = read(loaded, "test", order, seed)
        wrote[order] = write(loaded, batch.source, batch.source_mask)
    references = data.references("test")

    def bleu(written: Sequence[str]) -> float:
        return score_texts(written, references, tokenize="none")[0]["bleu"]

    return {
        "as it is": bleu(wrote["natural"]),
        "shuffled": bleu(wrote["shuffled"]),
        "another": bleu(draw.sample(wrote["natural"], len(references))),
    }


def next_word(loaded: LoadedRun, text: str, draw: random.Random) -> dict[str, float]:
    """Nats of a word given those before it, in the last tenth of a text. Does not use `data.word_order`, which moves
    the word to be predicted too."""
    ids = torch.tensor(loaded.tokenizer.encode(text[len(text) * 9 // 10 :]))
    windows = ids[: len(ids) // (CONTEXT + 1) * (CONTEXT + 1)].view(-1, CONTEXT + 1)
    before, targets = windows[:, :-1], windows[:, -1]
    order = torch.tensor([draw.sample(range(CONTEXT), CONTEXT) for _ in before])

    def loss(context: Tensor) -> float:
        logits = in_parts(lambda some: loaded.model(context[some])[0][:, -1], len(context))
        return float(nn.functional.cross_entropy(logits, targets))

    return {
        "as it is": loss(before),
        "shuffled": loss(before.gather(1, order)),
        "another": loss(before[torch.tensor(draw.sample(range(len(before)), len(before)))]),
    }


@torch.inference_mode()
def in_parts(model: Callable[[slice], Tensor], rows: int, size: int = 256) -> Tensor:
    """Logits (B, C) of so many rows, some at a time."""
    return torch.cat([model(slice(start, start + size)) for start in range(0, rows, size)])


def _text() -> str:
    path = corpus(TEXT)
    assert isinstance(path, Path)
    return "\n".join(path.read_text(encoding="utf-8").splitlines())
