"""serve_genai.py FOLDER THREADS: greedy decoding by onnxruntime-genai; contest.py has the protocol."""

import json
import sys
import time

import numpy as np
import onnxruntime_genai as og  # type: ignore[import-not-found]


def main() -> None:
    config = og.Config(sys.argv[1])
    settings = {"intra_op_num_threads": int(sys.argv[2])}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": settings}}}))
    model = og.Model(config)
    print("ready", flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        prompts = np.array(question["prompts"], dtype=np.int32)
        length = prompts.shape[1] + question["new_tokens"]
        start = time.perf_counter()
        options = og.GeneratorParams(model)
        options.set_search_options(do_sample=False, max_length=length, min_length=length, batch_size=len(prompts))
        generator = og.Generator(model, options)
        generator.append_tokens(prompts)
        while not generator.is_done():
            generator.generate_next_token()
        written = [generator.get_sequence(row)[prompts.shape[1] :].tolist() for row in range(len(prompts))]
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "written": written}), flush=True)


main()
