#include "bundle.h"
#include "error.h"
#include "seqlab/engine.h"

namespace seqlab {

struct TextPieces::Impl {
  explicit Impl(std::shared_ptr<const Bundle> opened) : bundle(std::move(opened)) {
    if (bundle->info.has_tokenizer) stream = std::make_unique<TextStream>(bundle->tokenizer.get());
  }

  std::string Push(int64_t id) {
    if (stream != nullptr) return stream->Push(id);
    const char* before = begun ? " " : "";
    begun = true;
    return Join(before, id);
  }

  const std::shared_ptr<const Bundle> bundle;
  std::unique_ptr<TextStream> stream;
  bool begun = false;
};

TextPieces::TextPieces(Model model) : impl_(std::make_unique<Impl>(std::move(model.bundle_))) {}
TextPieces::~TextPieces() = default;
TextPieces::TextPieces(TextPieces&&) noexcept = default;
TextPieces& TextPieces::operator=(TextPieces&&) noexcept = default;

Result<std::string> TextPieces::Push(int64_t id) {
  return Guarded([&] { return impl_->Push(id); });
}

Result<std::string> TextPieces::Finish() {
  return Guarded([&] { return impl_->stream == nullptr ? std::string() : impl_->stream->Finish(); });
}

}  // namespace seqlab
