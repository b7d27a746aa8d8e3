// continue_text BUNDLE TEXT: continues a text in three ways, each on a thread of its own.
//
// A bundle is opened once, and copies of the model share it; each thread has a session, which holds the state of its
// text.

#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "seqlab/runtime.h"

namespace {

// Returns the continuation, or the message of the failure.
std::string Continue(const seqlab::Model& model, const std::string& text, uint64_t seed) {
  seqlab::GenerateOptions options;
  options.max_new_tokens = 60;
  options.sampling.temperature = 0.8;
  options.sampling.top_k = 40;
  options.sampling.seed = seed;
  seqlab::Session session(model);
  const seqlab::Result<std::string> written = session.Write(text, options);
  return written.ok() ? *written : written.status().message();
}

// Returns the likeliest token after a text, computed from ids and logits.
seqlab::Result<std::string> Likeliest(const seqlab::Model& model, const std::string& text) {
  const seqlab::Result<seqlab::Ids> ids = model.Encode(text);
  if (!ids.ok()) return ids.status();
  seqlab::Session session(model);
  const seqlab::Result<seqlab::Array> logits = session.Prefill({*ids});
  if (!logits.ok()) return logits.status();
  size_t best = 0;
  for (size_t id = 0; id < logits->values.size(); ++id) {
    if (logits->values[id] > logits->values[best]) best = id;
  }
  return model.Decode({static_cast<int64_t>(best)});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: continue_text BUNDLE TEXT\n";
    return 2;
  }
  const seqlab::Result<seqlab::Model> model = seqlab::Model::Open(argv[1]);
  if (!model.ok()) {
    std::cerr << model.status().message() << "\n";
    return 2;
  }
  const seqlab::Result<std::string> next = Likeliest(*model, argv[2]);
  if (!next.ok()) {
    std::cerr << next.status().message() << "\n";
    return 2;
  }
  std::cout << "likeliest: " << *next << "\n";
  std::vector<std::string> texts(3);
  std::vector<std::thread> threads;
  for (size_t seed = 0; seed < texts.size(); ++seed) {
    threads.emplace_back([&, seed] { texts[seed] = Continue(*model, argv[2], seed); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) std::cout << "written: " << text << "\n";
}
