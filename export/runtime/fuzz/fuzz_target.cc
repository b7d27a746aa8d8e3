// The fuzz target, for libFuzzer or for driver.cc. The first byte of a case says what the rest is:
//
//   m  a manifest            t  a tokenizer.json, and after a NUL byte the texts to encode
//   n  a .npy file           u  bytes to decode as UTF-8 piece by piece
//   d  prompts to continue with the bundle in $SEQLAB_FUZZ_BUNDLE, if set: a byte a token, a newline ends a prompt
//
// A case may end in a Refusal or a Status, and in no other error.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "error.h"
#include "golden.h"
#include "manifest.h"
#include "seqlab/runtime.h"
#include "tokenizer.h"

namespace {

void FuzzTokenizer(std::string_view content) {
  const size_t end = std::min(content.find('\0'), content.size());
  const auto tokenizer = seqlab::MakeTokenizer(std::string(content.substr(0, end)), "");
  const std::string_view text = content.substr(end);
  const seqlab::Ids ids = tokenizer->Encode(text);
  tokenizer->Decode(ids);
  tokenizer->Decode({static_cast<int64_t>(text.size())});
}

// Checks that bytes decoded one by one give the same text as at once, and that it is UTF-8.
void FuzzUtf8(std::string_view bytes) {
  seqlab::Utf8Stream whole, pieces;
  std::string expected = whole.Push(bytes), found;
  expected += whole.Finish();
  for (const char byte : bytes) found += pieces.Push({&byte, 1});
  found += pieces.Finish();
  if (found != expected) std::abort();
  seqlab::CheckUtf8(found);
}

const seqlab::Model* FuzzedModel() {
  static const auto model = []() -> std::optional<seqlab::Model> {
    const char* folder = std::getenv("SEQLAB_FUZZ_BUNDLE");
    if (folder == nullptr) return std::nullopt;
    seqlab::OpenOptions options;
    options.threads = 1;
    auto opened = seqlab::Model::Open(folder, options);
    if (!opened.ok()) std::abort();
    return *opened;
  }();
  return model ? &*model : nullptr;
}

void FuzzDecoding(std::string_view bytes) {
  const seqlab::Model* model = FuzzedModel();
  if (model == nullptr || bytes.size() < 4) return;
  std::vector<seqlab::Ids> prompts(1);
  for (const char byte : bytes.substr(4)) {
    if (byte == '\n') {
      prompts.emplace_back();
    } else {
      prompts.back().push_back(byte - 'a');
    }
  }
  seqlab::Session session(*model);
  if (bytes[0] % 2 == 0) (void)session.ReadSource(prompts);
  seqlab::GenerateOptions options;
  options.max_new_tokens = bytes[1];
  options.sampling.temperature = bytes[2] / 16.0;
  options.sampling.top_k = bytes[3];
  (void)session.Generate(prompts, options);
  (void)session.Step(prompts[0]);
  seqlab::BeamOptions beam;
  beam.beams = bytes[3];
  beam.max_new_tokens = bytes[1];
  (void)session.BeamSearch(prompts, beam);
  seqlab::Batch batch{static_cast<int64_t>(prompts.size()), bytes[1], prompts[0], {}, {}};
  (void)model->Run(batch);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view content(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] == 'm') seqlab::ParseManifest(std::string(content));
    if (data[0] == 't') FuzzTokenizer(content);
    if (data[0] == 'n') seqlab::ParseNpy(content);
    if (data[0] == 'u') FuzzUtf8(content);
    if (data[0] == 'd') FuzzDecoding(content);
  } catch (const seqlab::Refusal&) {
  }
  return 0;
}
