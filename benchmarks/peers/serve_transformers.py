"""serve_transformers.py FOLDER THREADS: greedy `generate` of the checkpoint in FOLDER; contest.py has the protocol."""

import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM


def main() -> None:
    torch.set_num_threads(int(sys.argv[2]))
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
    print("ready", flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        prompts = torch.tensor(question["prompts"])
        count = question["new_tokens"]
        start = time.perf_counter()
        with torch.inference_mode():
            texts = model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                do_sample=False,
                max_new_tokens=count,
                eos_token_id=-1,
                pad_token_id=0,
            )
        seconds = time.perf_counter() - start
        written = texts[:, prompts.shape[1] :].tolist()
        print(json.dumps({"seconds": seconds, "written": written}), flush=True)


main()
