#include "bundle.h"

#include <algorithm>

#include "error.h"
#include "huge_pages.h"

namespace seqlab {
namespace {

MaybeTokenizer Loaded(const std::filesystem::path& folder, const std::optional<std::string>& name) {
  if (!name) return {nullptr, folder.string() + " has no tokenizer; give it ids"};
  try {
    return {LoadTokenizer(folder / *name), ""};
  } catch (const Refusal& refusal) {
    return {nullptr, (folder / *name).string() + ": " + refusal.what()};
  }
}

// Reads the manifest and checks that every file is as it says.
Manifest Checked(const std::filesystem::path& folder) {
  Manifest manifest = LoadManifest(folder);
  const auto damage = FindDamage(folder, manifest);
  if (!damage.empty()) {
    const auto& [name, what] = *damage.begin();
    Refuse(StatusCode::kDamagedBundle, folder.string(), " is not as it was written: ", name, ": ", what);
  }
  return manifest;
}

// Returns the files of the graphs that share weights: a device other than the CPU has its own copies.
std::vector<std::string> SharingGraphs(const Manifest& manifest, const std::string& provider) {
  std::vector<std::string> files;
  if (provider != "cpu") return files;
  for (const GraphInfo* graph : manifest.Graphs()) files.push_back(graph->file);
  if (manifest.guess) files.push_back(manifest.guess->file);
  return files;
}

std::unique_ptr<Graph> Opened(const Bundle& bundle, const std::optional<GraphInfo>& info) {
  if (!info) return nullptr;
  return std::make_unique<Graph>(bundle.onnxruntime, *bundle.weights, *info, bundle.manifest, bundle.options);
}

}  // namespace

const Tokenizer& MaybeTokenizer::get() const {
  if (tokenizer == nullptr) throw Refusal(reason, StatusCode::kUnsupported);
  return *tokenizer;
}

Rows Padded(const std::vector<Ids>& rows, const std::string& what, bool on_the_left) {
  if (rows.empty()) Refuse("there is no ", what, "; give at least one");
  Rows padded;
  padded.rows = static_cast<int64_t>(rows.size());
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].empty()) Refuse(what, " ", row, " is empty; it needs at least one token");
    if (const int64_t least = *std::min_element(rows[row].begin(), rows[row].end()); least < 0) {
      Refuse(what, " ", row, " has token ", least, ", ids begin at 0");
    }
    padded.length = std::max(padded.length, static_cast<int64_t>(rows[row].size()));
  }
  for (const Ids& row : rows) {
    const auto pads = static_cast<size_t>(padded.length) - row.size();
    const size_t before = on_the_left ? pads : 0, after = pads - before;
    padded.tokens.insert(padded.tokens.end(), before, 0);
    padded.tokens.insert(padded.tokens.end(), row.begin(), row.end());
    padded.tokens.insert(padded.tokens.end(), after, 0);
    padded.mask.insert(padded.mask.end(), before, 0);
    padded.mask.insert(padded.mask.end(), row.size(), 1);
    padded.mask.insert(padded.mask.end(), after, 0);
  }
  return padded;
}

void CheckPadding(const Rows& rows) {
  for (int64_t row = 0; row < rows.rows; ++row) {
    const auto first = rows.mask.begin() + row * rows.length, last = first + rows.length;
    if (std::any_of(first, last, [](uint8_t real) { return real > 1; })) Refuse("pad_mask must be of 0 and 1");
    // Real tokens are contiguous: after the first real token and the next padding there is no real token.
    if (std::find(std::find(std::find(first, last, 1), last, 0), last, 1) != last) {
      Refuse("row ", row, " of pad_mask has padding between real tokens; it may only stand before and after them");
    }
  }
}

Bundle::Bundle(const std::string& place, const OpenOptions& given)
    : folder(place), manifest(Checked(folder)), onnxruntime(OpenOnnxruntime(given.onnxruntime)), options(given) {
  if (ParseVersion(onnxruntime.version) < ParseVersion(manifest.min_onnxruntime)) {
    Refuse(StatusCode::kUnsupported, "this bundle needs onnxruntime ", manifest.min_onnxruntime, ", here is ",
           onnxruntime.version, " (", onnxruntime.file, ")");
  }
  if (options.threads < 0) Refuse("threads must be at least 0, got ", options.threads);
  OpenProvider(options.provider, onnxruntime);
  if (options.provider == "cpu") PreferHeap();
  const NewMemory memory;
  weights = std::make_unique<SharedWeights>(folder, SharingGraphs(manifest, options.provider));
  encoder = Opened(*this, manifest.encoder);
  model = Opened(*this, manifest.model);
  step = Opened(*this, manifest.step);
  guess = Opened(*this, manifest.guess);
  if (options.provider == "cpu") memory.PutInHugePages();
  tokenizer = Loaded(folder, manifest.tokenizer);
  if (manifest.source_tokenizer) source_tokenizer = Loaded(folder, manifest.source_tokenizer);
  info.folder = folder.string();
  info.precision = manifest.precision;
  info.commit = manifest.provenance.commit;
  info.run_id = manifest.provenance.run_id;
  info.min_onnxruntime = manifest.min_onnxruntime;
  info.decodes = model != nullptr;
  info.reads_source = model != nullptr && encoder != nullptr;
  info.has_tokenizer = tokenizer.tokenizer != nullptr;
  info.chats = info.has_tokenizer && !info.reads_source && tokenizer.get().chat().has_value();
  info.takes_any_bytes = info.has_tokenizer && SourceTokenizer().TakesAnyBytes();
  info.vocab_size = manifest.vocab_size;
  info.max_seq_len = manifest.max_seq_len;
  info.max_source_len = manifest.max_source_len;
  info.seq_len = manifest.seq_len;
  info.stop_ids = manifest.stop_ids;
  info.labels = manifest.labels;
  info.onnxruntime = onnxruntime.version;
  info.onnxruntime_file = onnxruntime.file;
  info.onnxruntime_api = onnxruntime.api;
}

std::vector<Value> Bundle::Encode(const Value& inputs, const Value& mask) const {
  if (encoder == nullptr) Refuse(folder.string(), " is the bundle of a language model, which reads prompts");
  if (const int64_t tokens = MostReal(mask); manifest.max_source_len && tokens > *manifest.max_source_len) {
    Refuse("an input has ", tokens, " tokens, this bundle reads at most ", *manifest.max_source_len);
  }
  return encoder->Run({inputs, mask});
}

const Tokenizer& Bundle::SourceTokenizer() const {
  return manifest.source_tokenizer ? source_tokenizer.get() : tokenizer.get();
}

}  // namespace seqlab
