"""seqlab: compare sequence models, track every run, ship the winner as a proven ONNX bundle."""

__version__ = "0.1.0"
