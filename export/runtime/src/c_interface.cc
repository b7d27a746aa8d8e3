// The C interface: each call of seqlab/seqlab.h as one of seqlab/runtime.h.
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "error.h"
#include "seqlab/runtime.h"
#include "seqlab/seqlab.h"

struct seqlab_model {
  seqlab::Model model;
};

namespace seqlab {
namespace {

thread_local std::string last_error;

std::optional<int64_t> UnlessZero(int64_t number) {
  return number == 0 ? std::nullopt : std::optional<int64_t>(number);
}

// Throws the failure of a call of runtime.h.
void Check(const Status& status) {
  if (!status.ok()) Refuse(status.code(), status.message());
}

// Runs a call, keeps the message of its failure and returns its number.
template <typename Run>
int Numbered(const Run& run) {
  const Status status = Guarded(run);
  last_error = status.message();
  return static_cast<int>(status.code());
}

}  // namespace
}  // namespace seqlab

seqlab_options seqlab_defaults(void) {
  const seqlab::GenerateOptions options;
  const auto& [temperature, top_k, top_p, min_p, seed] = options.sampling;
  const auto& [penalty, ngram] = options.repetition;
  return {options.max_new_tokens, temperature, top_k.value_or(0), top_p, min_p, seed, penalty, ngram.value_or(0)};
}

int seqlab_open(const char* folder, const char* onnxruntime, int threads, seqlab_model** model) {
  return seqlab::Numbered([&] {
    if (folder == nullptr || model == nullptr) seqlab::Refuse("seqlab_open needs a folder and a place for the model");
    *model = nullptr;
    seqlab::OpenOptions options;
    options.threads = threads;
    if (onnxruntime != nullptr) options.onnxruntime = onnxruntime;
    auto opened = seqlab::Model::Open(folder, options);
    seqlab::Check(opened.status());
    *model = new seqlab_model{std::move(*opened)};
  });
}

int seqlab_write(const seqlab_model* model, const char* prompt, size_t size, const seqlab_options* options,
                 seqlab_on_text on_text, void* user) {
  return seqlab::Numbered([&] {
    if (model == nullptr || on_text == nullptr || (prompt == nullptr && size != 0)) {
      seqlab::Refuse("seqlab_write needs a model, a prompt and a callback");
    }
    const seqlab_options given = options == nullptr ? seqlab_defaults() : *options;
    seqlab::GenerateOptions chosen;
    chosen.max_new_tokens = given.max_new_tokens;
    chosen.sampling = {given.temperature, seqlab::UnlessZero(given.top_k), given.top_p, given.min_p, given.seed};
    chosen.repetition = {given.repetition_penalty, seqlab::UnlessZero(given.no_repeat_ngram)};
    const auto each = [&](std::string_view piece) { return on_text(user, piece.data(), piece.size()) != 0; };
    const std::string_view text = size == 0 ? std::string_view() : std::string_view(prompt, size);
    seqlab::Check(seqlab::Session(model->model).Write(text, chosen, each).status());
  });
}

void seqlab_close(seqlab_model* model) { delete model; }

const char* seqlab_error(void) { return seqlab::last_error.c_str(); }
