#include "tokenizer.h"

#include "error.h"
#include "files.h"
#include "json_fields.h"

namespace seqlab {
namespace {

constexpr const char* kFileName = "tokenizer.json";
constexpr const char *kModelName = "tokenizer.model", *kPretrainedName = "pretrained.json";

void CheckAsset(const Field& root, const char* name, const std::string& asset) {
  if (Sha256OfText(asset) != root["assets"][name].String()) {
    Refuse(name, " is damaged: its sha256 is not the one in ", kFileName);
  }
}

std::unique_ptr<Tokenizer> OfClass(const Field& root, const std::string& asset) {
  const std::string name = root["class"].String();
  root["assets"].Members();
  if (name == "ByteTokenizer") return MakeByteTokenizer();
  if (name == "CharTokenizer") return MakeCharTokenizer(root["alphabet"].String());
  if (name == "WordTokenizer") return MakeWordTokenizer(root["words"].Strings(), root["newlines"].Bool());
  if (name == "SubwordTokenizer") {
    CheckAsset(root, kModelName, asset);
    return MakeSubwordTokenizer(asset);
  }
  if (name == "PretrainedTokenizer") {
    CheckAsset(root, kPretrainedName, asset);
    const SpecialIds special{root["pad_id"].Int(0), root["bos_id"].Int(-1), root["eos_id"].Int(-1)};
    auto tokenizer = MakePretrainedTokenizer(asset, root["vocab_size"].Int(0), special);
    if (root.Has("chat")) tokenizer->SetChat(ChatFormat(root["chat"], tokenizer->vocab_size()));
    return tokenizer;
  }
  Refuse("the runtime has no tokenizer \"", name.substr(0, 60),
         "\"; it has ByteTokenizer, CharTokenizer, PretrainedTokenizer, SubwordTokenizer and "
         "WordTokenizer");
}

}  // namespace

const std::string& Tokenizer::Bytes(int64_t id) const {
  if (id < 0 || id >= vocab_size()) {
    Refuse("token id ", id, " is outside the vocabulary, ids run from 0 to ", vocab_size() - 1);
  }
  return token_bytes_[static_cast<size_t>(id)];
}

std::string Tokenizer::Decode(const Ids& ids) const {
  TextStream stream(*this);
  std::string text;
  for (const int64_t id : ids) text += stream.Push(id);
  return text + stream.Finish();
}

std::string TextStream::Push(int64_t id) { return WithoutFirstSpace(stream_.Push(tokenizer_.Bytes(id))); }

std::string TextStream::Finish() { return WithoutFirstSpace(stream_.Finish()); }

std::string TextStream::WithoutFirstSpace(std::string text) {
  if (!begun_ && tokenizer_.DropsFirstSpace() && !text.empty() && text.front() == ' ') {
    begun_ = true;
    return text.substr(1);
  }
  begun_ = begun_ || !text.empty();
  return text;
}

std::unique_ptr<Tokenizer> MakeTokenizer(const std::string& description, const std::string& asset) {
  const Document document(description, kFileName);
  const Field root = document.Root(kFileName);
  std::unique_ptr<Tokenizer> tokenizer = OfClass(root, asset);
  if (const int64_t size = root["vocab_size"].Int(0); size != tokenizer->vocab_size()) {
    Refuse("this tokenizer has ", tokenizer->vocab_size(), " tokens, its description says ", size);
  }
  const auto members = root.Members();
  const std::pair<const char*, int64_t> special[] = {
      {"pad_id", tokenizer->pad_id()}, {"bos_id", tokenizer->bos_id()}, {"eos_id", tokenizer->eos_id()}};
  for (const auto& [name, id] : special) {
    const auto found = members.find(name);
    if (found != members.end() && found->second.Int(-1) != id) {
      Refuse("the ", name, " of this tokenizer is ", id, ", its description says ", found->second.Int(-1));
    }
  }
  return tokenizer;
}

std::unique_ptr<Tokenizer> LoadTokenizer(const std::filesystem::path& folder) {
  std::error_code error;
  std::string asset;
  for (const char* name : {kModelName, kPretrainedName}) {
    if (std::filesystem::is_regular_file(folder / name, error)) asset = ReadFile(folder / name);
  }
  return MakeTokenizer(ReadFile(folder / kFileName), asset);
}

}  // namespace seqlab
