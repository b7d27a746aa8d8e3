"""A TrainJob for Kubeflow Trainer 2: the processes of a fit on the nodes of a Kubernetes cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence

FOLDER = "/work"
"""Mount path of the volume. The fit runs there, so the volume holds the text and the tracking store."""


def train_job(name: str | None, fit: Sequence[str], nodes: int, gpus: int, image: str | None, claim: str | None) -> str:
    """Text of a TrainJob, whose fit continues its run after a restart.

    Args:
        name: name of the run.
        fit: options of `fit`.
        nodes, gpus: number of nodes, and of GPUs and processes per node.
        image: container image with seqlab in its Python.
        claim: name of the persistent volume claim that all nodes mount.

    Raises:
        ValueError: the name, image or claim is missing, or the name has no letter or digit that Kubernetes accepts.
    """
    import yaml

    for option, value in {"--run_name": name, "--image": image, "--claim": claim}.items():
        if not value:
            raise ValueError(f"--format trainjob needs {option}")
    label = re.sub("[^a-z0-9]+", "-", str(name).lower()).strip("-")[:50].strip("-")
    if label[:1].isdigit():  # a name in Kubernetes' services begins with a letter
        label = f"fit-{label}"
    if not label:
        raise ValueError(f"the run's name {name!r} has no letter or digit that the name of a TrainJob may have")
    pod = {
        "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": claim}}],
        "containers": [{"name": "node", "volumeMounts": [{"name": "work", "mountPath": FOLDER}]}],
    }
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": label},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {
                "image": image,
                "numNodes": nodes,
                "numProcPerNode": gpus,
                "resourcesPerNode": {"limits": {"nvidia.com/gpu": gpus}},
                # The runtime tells torchrun the nodes and processes in its environment.
                "command": ["bash", "-c", f'cd {FOLDER} && exec "$@"', "bash"],
                "args": ["torchrun", "-m", "seqlab", "fit", *fit],
            },
            "runtimePatches": [
                {"manager": "seqlab.io/submit", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
            ],
        },
    }
    return yaml.safe_dump(job, sort_keys=False, width=1000, allow_unicode=True)
