"""The files of examples/deploy: the image has what the server needs, and Kubernetes' schema accepts the deployment."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from runtime.conftest import Bundle
from runtime.programs import LIBRARY, ROOT, Command, build
from runtime.test_serve import Running

FOLDER = ROOT / "examples" / "deploy"
DOCUMENTS: list[dict[str, Any]] = [*yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())]
ANY_PORT = "0"


def instructions() -> list[tuple[str, str]]:
    """Names and arguments of the instructions of the container file."""
    lines = (FOLDER / "Containerfile").read_text().splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines if not line.startswith("#"))]


def of(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


@pytest.fixture(name="image")
def _image(bundle: Bundle, tmp_path: Path) -> Path:
    """The root folder of the image, without what is in its base."""
    program = build("seqlab-run")
    context, root = tmp_path / "context", tmp_path / "root"
    command: Command = ["cmake", "--install", program.parent, "--prefix", context / "seqlab", "--strip"]
    subprocess.run(command, check=True, capture_output=True)
    assert LIBRARY is not None
    shutil.copyfile(LIBRARY, context / "libonnxruntime.so")
    shutil.copytree(bundle("endless"), context / "bundle")
    for copied in of("COPY"):
        source, target = copied.split()
        place = root / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (context / source).is_dir() else shutil.copy)(context / source, place)
    return root


def test_the_image_serves(image: Path) -> None:
    """With nothing in its environment but what the file sets."""
    assert of("FROM") == ["debian:bookworm-slim"]
    size = sum(path.stat().st_size for path in image.rglob("*") if path.is_file())
    linked = subprocess.check_output(["ldd", image / "opt/seqlab/bin/seqlab-run"], text=True)
    outside = {line.split()[0] for line in linked.splitlines() if " => " in line and str(image) not in line}
    in_base = {"libstdc++.so.6", "libm.so.6", "libmvec.so.1", "libgcc_s.so.1", "libc.so.6"}
    assert outside <= in_base, "the base has no other"
    assert size < 60e6, f"{size / 1e6:.0f} MB; with the base, of 75 MB, an image has at most 200 MB"
    [entry], [command], [setting] = of("ENTRYPOINT"), of("CMD"), of("ENV")
    [port] = of("EXPOSE")
    words: list[str] = [*json.loads(entry), *json.loads(command)]
    words[words.index(port)] = ANY_PORT
    name, value = setting.split("=")
    inside = [f"{image}{word}" if word.startswith("/") else word for word in words]
    environment = {name: f"{image}{value}"}
    with subprocess.Popen(inside, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            assert " at http://0.0.0.0:" in said, said
            server = Running(process, int(said.rsplit(":", 1)[1]), "none")
            container = DOCUMENTS[2]["spec"]["template"]["spec"]["containers"][0]
            for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
                probed = container[kind]["httpGet"]
                assert probed["port"] == "http" and server.ask("GET", probed["path"])[0] == 200
            assert server.ask("GET", DOCUMENTS[1]["metadata"]["annotations"]["prometheus.io/path"])[0] == 200
            assert server.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 2})[0] == 200
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_the_deployment_is_one() -> None:
    secret, service, deployment = DOCUMENTS
    for document in DOCUMENTS:
        kubernetes_validate.validate(document, "1.31", strict=True)
    pod = deployment["spec"]["template"]
    [container] = pod["spec"]["containers"]
    assert container["args"] == json.loads(of("CMD")[0]), "the same command as in the image"
    [port] = container["ports"]
    assert [str(port["containerPort"])] == of("EXPOSE") == [service["metadata"]["annotations"]["prometheus.io/port"]]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    [variable] = container["env"]
    key = variable["valueFrom"]["secretKeyRef"]
    assert variable["name"] == "SEQLAB_API_KEY" and key["name"] == secret["metadata"]["name"]
    assert key["key"] in secret["stringData"]
    server = (ROOT / "export/runtime/serve/server.cc").read_text()
    drained = re.search(r"kDrainSeconds\{(\d+)\}", server)
    assert drained is not None and pod["spec"]["terminationGracePeriodSeconds"] > int(drained[1])


def test_the_service_of_kserve_has_a_container_that_kubernetes_takes() -> None:
    """KServe's own fields were checked with its models; Kubernetes' schema knows the others."""
    document = yaml.safe_load((FOLDER / "kserve.yaml").read_text())
    model = document["spec"]["predictor"]["model"]
    own = {name: model.pop(name) for name in ("modelFormat", "protocolVersion", "storageUri")}
    assert own == {"modelFormat": {"name": "triton"}, "protocolVersion": "v2", "storageUri": "pvc://models"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": document["metadata"]}
    container = {"name": "kserve-container", **model}
    kubernetes_validate.validate(pod | {"spec": {"containers": [container]}}, "1.31", strict=True)
