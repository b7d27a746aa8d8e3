// Byte-pair encoding by sentencepiece (Kudo and Richardson 2018).

#include <sentencepiece_processor.h>

#include <array>
#include <map>

#include "error.h"
#include "tokenizer.h"

namespace seqlab {
namespace {

// The character that sentencepiece writes for a space. In a text it is encoded as bytes, or it would decode to a space.
constexpr std::string_view kSpace = "\xE2\x96\x81";

using Processor = sentencepiece::SentencePieceProcessor;

std::string BytesOf(const Processor& processor, int id) {
  if (processor.IsControl(id)) return "";
  if (processor.IsUnknown(id)) return std::string(kReplacement);
  std::string piece = processor.IdToPiece(id);
  if (processor.IsByte(id)) return std::string(1, static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16)));
  for (size_t place = 0; (place = piece.find(kSpace, place)) != std::string::npos; ++place) {
    piece.replace(place, kSpace.size(), " ");
  }
  return piece;
}

std::vector<std::string> TableOf(const Processor& processor) {
  std::vector<std::string> table;
  for (int id = 0; id < processor.GetPieceSize(); ++id) table.push_back(BytesOf(processor, id));
  return table;
}

class SubwordTokenizer : public Tokenizer {
 public:
  explicit SubwordTokenizer(std::unique_ptr<Processor> processor)
      : Tokenizer(TableOf(*processor)), processor_(std::move(processor)) {}

  // No piece holds a newline or kSpace, so the parts between them are encoded one by one.
  Ids Encode(std::string_view text) const override {
    CheckUtf8(text);
    Ids ids;
    size_t start = 0;
    for (size_t place = 0; place < text.size();) {
      const size_t size = text[place] == '\n' ? 1 : text.substr(place, kSpace.size()) == kSpace ? kSpace.size() : 0;
      if (size > 0) {
        AddPieces(text.substr(start, place - start), ids);
        for (const char byte : text.substr(place, size)) ids.push_back(ByteId(static_cast<uint8_t>(byte)));
        start = place + size;
      }
      place += size > 0 ? size : 1;
    }
    AddPieces(text.substr(start), ids);
    return ids;
  }

 private:
  void AddPieces(std::string_view part, Ids& ids) const {
    std::vector<int> found;
    if (const auto status = processor_->Encode({part.data(), part.size()}, &found); !status.ok()) {
      Refuse("sentencepiece cannot encode this text: ", status.ToString());
    }
    ids.insert(ids.end(), found.begin(), found.end());
  }

  int64_t ByteId(uint8_t byte) const {
    std::array<char, 7> name{};
    std::snprintf(name.data(), name.size(), "<0x%02X>", byte);
    return processor_->PieceToId(name.data());
  }

  std::unique_ptr<Processor> processor_;
};

}  // namespace

std::unique_ptr<Tokenizer> MakeSubwordTokenizer(const std::string& model) {
  auto processor = std::make_unique<Processor>();
  if (const auto status = processor->LoadFromSerializedProto(model); !status.ok()) {
    Refuse("sentencepiece cannot read this model: ", status.ToString());
  }
  return std::make_unique<SubwordTokenizer>(std::move(processor));
}

}  // namespace seqlab
