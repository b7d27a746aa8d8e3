"""What trained models lose when the words change places."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from seqlab.studies.arms import Arm
from seqlab.studies.corpora import corpus, needed
from seqlab.studies.rules import Claim, Control, Rule
from seqlab.studies.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun

if TYPE_CHECKING:
    from altair import TopLevelMixin

TRAIN, DEV, TEXT = "sst2/stsa.binary.train", "sst2/stsa.binary.dev", "tiny-shakespeare/input.txt"
CONTEXT = 24
"""Words before the one that is predicted."""
KEPT = Rule(
    "the share of what the words tell that is left when they are shuffled, 1 = all, 0 = no more than of another text,",
    low=0.9,
    beyond=0.1,
)
CLASSIFY = ("--config=classify/transformer", "--model.model.encoder.d_model=64", "--trainer.max_epochs=3")
SENTIMENT, READER, BAG = "sentiment, Transformer", "sentiment, GRU both ways", "sentiment, bag of words"
WRITER, RECURRENT = "next word, Transformer", "next word, GRU"
OTHER = "sentiment, the words of another text"


class Shuffled(Study):
    name = "shuffled"
    question = "Does a trained Transformer care about the order of the words?"
    matched = (
        "Sentiment: sentences of SST-2, the models' own widths, accuracy on the development set. Next word: tiny "
        "Shakespeare by words, of those that come 20 times, two layers of 64 channels, loss of the word after "
        f"{CONTEXT} others in the last tenth. "
        "The same model reads each text as it is, with its words shuffled, and with the words of another text; the "
        "share is (shuffled - another) / (as it is - another). Each model has its best of three learning rates."
    )
    why = (
        "What a task needs of the order decides, more than the model. Which words stand in a review tells most of its "
        "sentiment, so that training rewards little else; what comes next depends on the last words in their order."
    )
    change = "A task whose answer is in the order: who did it to whom, the scope of a negation, a language model."
    claims = (
        Claim(
            "ignores",
            "Even with positions a trained Transformer largely ignores the order of the words.",
            "L2, claim 17",
            (SENTIMENT, WRITER),
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
        train, dev, text = corpus(TRAIN), corpus(DEV), corpus(TEXT)
        if scale == "smoke" or train is None or dev is None or text is None:
            return ()
        labelled = (f"--data.train={train}", f"--data.val={dev}", "--data.tokenizer.min_count=2")
        words = (
            *("--config=lm/attention", f"--data.path={text}", "--data.tokenizer=WordTokenizer"),
            *("--data.tokenizer.min_count=20", "--data.seq_len=32", "--data.batch_size=32", "--model.warmup_steps=30"),
            *("--model.model.d_model=64", "--model.model.num_layers=2", "--model.model.dropout=0.1"),
            *(f"--trainer.max_steps={600 if scale == 'cpu' else 6000}", "--trainer.val_check_interval=200"),
        )
        gru = ("--config=classify/bigru", "--model.model.encoder.d_model=64", "--trainer.max_epochs=3")
        rates = (5e-4, 1e-3, 2e-3)
        return (
            Arm(SENTIMENT, (*CLASSIFY, *labelled), rates),
            Arm(READER, (*gru, *labelled), (1e-3, 2e-3, 4e-3)),
            Arm(BAG, ("--config=classify/bag-of-words", *labelled), (3e-3, 1e-2, 3e-2)),
            Arm(WRITER, words, (2e-3, 4e-3, 8e-3)),
            Arm(
                RECURRENT,
                (*words, "--model.model.mixer=GRU", "--model.model.positions=NoPositions"),
                (2e-3, 4e-3, 8e-3),
            ),
        )

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        if not runs:
            missing = needed(TRAIN, DEV, TEXT) or "no model is trained at smoke scale"
            return Measured({}, [], {claim.key: missing for claim in self.claims})
        draw, found = random.Random(seed), dict[str, dict[str, float]]()
        for name in (SENTIMENT, READER, BAG):
            found[name] = sentiment(runs[name], _lines(DEV), draw)
        for name in (WRITER, RECURRENT):
            found[name] = next_word(runs[name], _lines(TEXT), draw)
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

        base = alt.Chart().encode(
            x=alt.X("value:Q", title="accuracy, or loss of the next word in nats", scale=alt.Scale(zero=False)),
            y=alt.Y("words:N", title=None, sort=["as it is", "shuffled", "another"]),
            shape=alt.Shape("words:N", title=None, legend=None),
            color=alt.Color("words:N", title=None, legend=None),
            tooltip=["model:N", "words:N", "seed:O", "value:Q", "share:Q"],
        )
        chart: TopLevelMixin = (
            alt.layer(base.mark_point(filled=True, size=80), data=alt.InlineData(values=points))
            .properties(width=220, height=alt.Step(18))
            .facet(facet=alt.Facet("model:N", title=None, header=alt.Header(labelAnchor="start")), columns=1)
            .resolve_scale(x="independent")
            .configure(font="sans-serif")
            .configure_axis(labelFontSize=12, titleFontSize=12)
            .configure_header(labelFontSize=13)
        )
        return chart


def share(shuffled: float, another: float, own: float) -> float:
    """Of what a text's own words give over another's, what is left of it when they are shuffled."""
    return (shuffled - another) / (own - another)


def sentiment(run: TrackedRun, lines: Sequence[str], draw: random.Random) -> dict[str, float]:
    """Accuracy on lines of a label and a sentence, by what the model reads of it."""
    from seqlab.trained.load import load_run

    loaded = load_run(run.id)
    labels, texts = zip(*(line.split(" ", 1) for line in lines), strict=True)
    targets = torch.tensor([loaded.labels.index(label) for label in labels])
    limit = loaded.task.seq_len

    def accuracy(texts: Sequence[str]) -> float:
        rows = [torch.tensor(loaded.tokenizer.encode(text)[:limit] or [0]) for text in texts]
        inputs = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        mask = torch.arange(inputs.shape[1]) < torch.tensor([len(row) for row in rows]).unsqueeze(1)
        logits = in_parts(lambda some: loaded.model(inputs[some], pad_mask=mask[some]), len(rows))
        return float((logits.argmax(-1) == targets).double().mean())

    return {
        "as it is": accuracy(texts),
        "shuffled": accuracy([" ".join(draw.sample(words, len(words))) for words in map(str.split, texts)]),
        "another": accuracy(draw.sample(texts, len(texts))),
        "a third": accuracy(draw.sample(texts, len(texts))),
    }


def next_word(run: TrackedRun, lines: Sequence[str], draw: random.Random) -> dict[str, float]:
    """Nats of a word by what stands before it, in the last tenth of a text."""
    from seqlab.trained.load import load_run

    loaded = load_run(run.id)
    text = "\n".join(lines)
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


def _lines(name: str) -> list[str]:
    path = corpus(name)
    assert isinstance(path, Path)
    return path.read_text(encoding="utf-8").splitlines()
