"""BERT's objective and GPT's on one text: what each can write, find, and tell of a name."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.models import DecoderLM, MaskedLM
from seqlab.study.arms import Arm
from seqlab.study.charts import styled
from seqlab.study.rules import Claim, Control, Rule
from seqlab.study.study import Measured, Points, Scale, Study
from seqlab.tracking.runs import TrackedRun
from seqlab_studies.lib.corpora import corpus, needed

if TYPE_CHECKING:
    from altair import TopLevelMixin

NAMES = "names-by-language"
WIDTH, CONTEXT, STRIDE = 64, 64, 4
FEW, MANY, TESTED = 10, 100, 100
"""Names per language that a probe learns from, few or many, and is tested on."""
SHOWN = {"few": FEW, "many": MANY}
BERT, GPT, UNTRAINED = "BERT's objective", "GPT's objective", ", not trained"
BETTER = Rule("accuracy of telling the language, minus the other's,", low=0.02, beyond=0.01)
CHEAPER = Rule("loss of the other minus its own, in nats a character,", low=0.05, beyond=0.04)
AGAIN, GUESSED = "GPT's objective, fitted again", "over probes of shuffled languages"
FREQUENT = "over the frequencies, "
LEARNT = tuple(
    Control(FREQUENT + name, CHEAPER, True, "It has learned its own task, or nothing is shown.") for name in (BERT, GPT)
)


class Objective(Study):
    name = "objective"
    question = "Do encoders understand, and decoders write?"
    matched = (
        "20,050 surnames in 18 languages, character by character. Two layers of 64 channels with four heads and "
        "rotary positions, at cpu scale 1,200 steps of 32 windows of 64 characters, the best of three learning rates "
        "each: one model reads both ways and finds 15% hidden characters, the other reads from left to right and "
        "predicts the next; the first has 4,000 parameters more of 110,000. Understanding is what a linear probe "
        "tells of the language of a name, of 13 languages, from the mean and the last of the model's outputs, "
        "frozen; the names were in the text of both, their languages not. Writing and finding are of the text's last "
        "twentieth. Posed a second time: with learned positions the masked model had learned next to nothing, and no "
        "control asked for it."
    )
    why = (
        "What a model was trained to predict is what it predicts well: who reads from left to right meets no mask at "
        "the end, who hides characters meets both sides. For telling classes both have to learn which characters go "
        "together, and the probe finds in either about as much; in short fits, the masked model's more or less by "
        "the seed, for it learns late and at once."
    )
    change = "More text, larger models, fine-tuning in place of a probe, or a task about two texts at once."
    claims = (
        Claim(
            "understand",
            "Encoders understand: what BERT's objective taught tells classes better than what GPT's did.",
            "L1 and L2, claim 25",
            tuple(f"{BERT}, {count} names a language" for count in SHOWN.values()),
            BETTER,
            (
                Control(GUESSED, BETTER, True, "A probe of the right languages knows more."),
                Control(AGAIN, BETTER, False, "It is the same model."),
                *LEARNT,
            ),
        ),
        Claim(
            "learned",
            "What predicting text has taught helps to tell classes.",
            "L1 and L2, claim 25",
            tuple(f"{name}, over not trained, {MANY}" for name in (BERT, GPT)),
            BETTER,
            (
                Control(GUESSED, BETTER, True, "A probe of the right languages knows more."),
                Control(AGAIN, BETTER, False, "It is the same model."),
                *LEARNT,
            ),
        ),
        Claim(
            "write",
            "Decoders write: GPT's objective predicts the next character better than a mask at the end does.",
            "L1 and L2, claim 25",
            ("the next character",),
            CHEAPER,
            (
                *LEARNT,
                Control(f"{AGAIN}, in nats", CHEAPER, False, "It is the same model."),
            ),
        ),
        Claim(
            "both",
            "Who reads both ways finds a hidden character better than who reads the left alone.",
            "L2, claim 24",
            ("a hidden character",),
            CHEAPER,
            (
                *LEARNT,
                Control(f"{AGAIN}, in nats", CHEAPER, False, "It is the same model."),
            ),
        ),
    )

    def arms(self, scale: Scale) -> Sequence[Arm]:
        folder = corpus(NAMES)
        if scale == "smoke" or folder is None:
            return ()
        steps = 1200 if scale == "cpu" else 20_000
        data = (f"--data.path={folder}/*.txt", f"--data.seq_len={CONTEXT}", "--data.batch_size=32")
        sizes = (f"d_model={WIDTH}", "num_layers=2", "mixer.num_heads=4", "positions=RoPE")
        found = []
        rates = (2e-3, 4e-3, 8e-3)
        for name, config, where in ((BERT, "mlm/transformer", "encoder."), (GPT, "lm/attention", "")):
            fit = (f"--config={config}", *data, *(f"--model.model.{where}{size}" for size in sizes))
            long = (f"--trainer.max_steps={steps}", f"--trainer.val_check_interval={steps // 4}")
            found += [
                Arm(name, (*fit, *long), rates),
                Arm(name + UNTRAINED, (*fit, "--trainer.max_steps=1", "--trainer.val_check_interval=1"), (1e-9,)),
            ]
        return [*found, Arm(AGAIN, (*fit, *long), rates)]  # of the last, GPT's

    def measure(self, scale: Scale, seed: int, runs: Mapping[str, TrackedRun]) -> Measured:
        from seqlab.trained.load import load_run

        if not runs:
            missing = needed(NAMES) or "no model is trained at smoke scale"
            return Measured({}, [], {claim.key: missing for claim in self.claims})
        loaded = {name: load_run(run.id) for name, run in runs.items()}
        draw = random.Random(seed)
        texts = [draw.sample(found, MANY + TESTED) for found in languages()]
        told, guessed = dict[str, dict[str, float]](), 0.0
        for name, of in loaded.items():
            with torch.inference_mode():
                features = torch.stack([summaries(of.model, of.tokenizer, some) for some in texts])  # (languages, N, F)
            features = features.clone()
            told[name] = {how: probe(features[:, :count], features[:, MANY:]) for how, count in SHOWN.items()}
            if name == GPT:
                order = torch.randperm(MANY * len(texts), generator=torch.Generator().manual_seed(seed))
                mixed = features[:, :MANY].flatten(0, 1)[order].view_as(features[:, :MANY])
                guessed = probe(mixed, features[:, MANY:])
        bert, gpt = loaded[BERT].model, loaded[GPT].model
        windows, counts = held_out(loaded[GPT].datamodule)
        hidden = CONTEXT // 2
        nats = {
            "next": {BERT: masked_nats(bert, windows, CONTEXT - 1), GPT: next_nats(gpt, windows, CONTEXT - 1)},
            "hidden": {BERT: masked_nats(bert, windows, hidden), GPT: next_nats(gpt, windows, hidden)},
        }
        values = {
            **{f"{BERT}, {count} names a language": told[BERT][how] - told[GPT][how] for how, count in SHOWN.items()},
            **{
                f"{name}, over not trained, {MANY}": told[name]["many"] - told[name + UNTRAINED]["many"]
                for name in (BERT, GPT)
            },
            GUESSED: told[GPT]["many"] - guessed,
            AGAIN: told[AGAIN]["many"] - told[GPT]["many"],
            "the next character": nats["next"][BERT] - nats["next"][GPT],
            "a hidden character": nats["hidden"][GPT] - nats["hidden"][BERT],
            FREQUENT + BERT: frequency_nats(counts, windows[:, hidden]) - nats["hidden"][BERT],
            FREQUENT + GPT: frequency_nats(counts, windows[:, -1]) - nats["next"][GPT],
            f"{AGAIN}, in nats": nats["next"][GPT] - next_nats(loaded[AGAIN].model, windows, CONTEXT - 1),
        }
        points = [
            {"model": name, "task": f"{SHOWN[how]} names a language", "value": value}
            for name, of_name in told.items()
            if name != AGAIN
            for how, value in of_name.items()
        ]
        points += [{"model": name, "task": task, "value": at} for task, of in nats.items() for name, at in of.items()]
        return Measured(values, points)

    def figure(self, claim: Claim, points: Points) -> TopLevelMixin:
        import altair as alt

        task = {"write": ("next",), "both": ("hidden",)}.get(claim.key)
        shown = [row for row in points if (row["task"] in task if task else "names" in row["task"])]
        title = "loss, nats a character (less is better)" if task else "share told right, of names in 13 languages"
        base = alt.Chart(alt.InlineData(values=shown)).encode(
            alt.X("value:Q", title=title, scale=alt.Scale(zero=False)),
            alt.Y("model:N", title=None),
            alt.Shape("task:N", title=None, legend=None if task else alt.Undefined),
            alt.Color("task:N", title=None, legend=None if task else alt.Undefined),
            tooltip=["model:N", "task:N", "seed:O", "value:Q"],
        )
        return styled(base.mark_point(filled=True, size=80).properties(width=180, height=alt.Step(28)))


def languages() -> list[list[str]]:
    """The names of each language that has enough of them, without those shared by several."""
    folder = corpus(NAMES)
    assert folder is not None
    found = [file.read_text(encoding="utf-8").split("\n") for file in sorted(folder.glob("*.txt"))]
    owners = Counter(name for names in found for name in set(names))
    own = [sorted({name for name in names if name and owners[name] == 1}) for names in found]
    return [names for names in own if len(names) >= MANY + TESTED]


def summaries(model: Any, tokenizer: Any, names: Sequence[str]) -> Tensor:
    """(N, 2 D): mean and last of the model's outputs over a name and the line ends around it."""
    found = []
    for name in names:
        tokens = torch.tensor([tokenizer.encode(f"\n{name}\n")])
        x = model.encoder(tokens) if isinstance(model, MaskedLM) else model(tokens, features=True)[0]
        found.append(torch.cat((x[0].mean(0), x[0, -1])))
    return torch.stack(found)


def probe(train: Tensor, test: Tensor, penalty: float = 1e-2) -> float:
    """Accuracy of a logistic regression on features (classes, N, F), each scaled to the same spread."""
    mean, spread = train.flatten(0, 1).mean(0), train.flatten(0, 1).std(0) + 1e-6
    (x, y), (seen, truth) = (
        (((part - mean) / spread).flatten(0, 1).double(), torch.arange(len(part)).repeat_interleave(part.shape[1]))
        for part in (train, test)
    )
    weight = torch.zeros(len(train), x.shape[1] + 1, dtype=torch.float64, requires_grad=True)

    def scores(features: Tensor) -> Tensor:
        return F.linear(features, weight[:, 1:], weight[:, 0])

    optimizer = torch.optim.LBFGS([weight], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(scores(x), y) + penalty * weight[:, 1:].square().sum() / 2
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return float((scores(seen).argmax(1) == truth).double().mean())


def held_out(data: Any) -> tuple[Tensor, Tensor]:
    """Windows (N, CONTEXT) of the test split, and how often each character stands in its first half."""
    data.setup("test")
    stream = torch.cat([batch.tokens.flatten() for batch in data.test_dataloader()])
    windows: Tensor = stream.unfold(0, CONTEXT, STRIDE)
    return windows, torch.bincount(stream[: len(stream) // 2], minlength=data.vocab_size)


def masked_nats(model: MaskedLM, windows: Tensor, place: int) -> float:
    """Nats of the hidden character at a place."""
    hidden = windows.clone()
    hidden[:, place] = model.mask_id
    return _nats(lambda some: model(some)[:, place], hidden, windows[:, place])


def next_nats(model: DecoderLM, windows: Tensor, place: int) -> float:
    """Nats of the character at a place, given those before it."""
    return _nats(lambda some: model(some)[0][:, -1], windows[:, :place], windows[:, place])


@torch.inference_mode()
def _nats(logits: Callable[[Tensor], Tensor], inputs: Tensor, targets: Tensor) -> float:
    return float(nn.functional.cross_entropy(torch.cat([logits(some) for some in torch.split(inputs, 256)]), targets))


def frequency_nats(counts: Tensor, targets: Tensor) -> float:
    """Nats of characters by their frequency, with add-one smoothing."""
    shares = (counts + 1).double() / (counts + 1).sum()
    return float(-shares[targets].log().mean())
