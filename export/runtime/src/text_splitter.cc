#include "text_splitter.h"

#include <oniguruma.h>
#include <utf8proc.h>

#include <cstdlib>

#include "error.h"
#include "utf8.h"

namespace seqlab {
namespace {

// The pattern of GPT-2, which ByteLevel has by itself.
constexpr std::string_view kWords = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const OnigUChar* Bytes(std::string_view text) { return reinterpret_cast<const OnigUChar*>(text.data()); }

}  // namespace

// A regular expression of Oniguruma, the library of Hugging Face's tokenizers.
class Pattern {
 public:
  explicit Pattern(std::string_view text) {
    static const int ready = [] {
      OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
      return onig_initialize(encodings, 1);
    }();
    (void)ready;
    OnigErrorInfo error;
    const int code = onig_new(&pattern_, Bytes(text), Bytes(text) + text.size(), ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                              ONIG_SYNTAX_DEFAULT, &error);
    if (code != ONIG_NORMAL) Refuse("the pattern \"", text.substr(0, 60), "\" is none of Oniguruma");
  }
  ~Pattern() { onig_free(pattern_); }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  // Adds the matches of a text and what is between them, each with whether it matches.
  void Split(std::string_view text, std::vector<std::pair<std::string_view, bool>>& parts) const {
    const std::unique_ptr<OnigRegion, void (*)(OnigRegion*)> found(
        onig_region_new(), [](OnigRegion* region) { onig_region_free(region, 1); });
    const OnigUChar* end = Bytes(text) + text.size();
    size_t done = 0;
    for (size_t place = 0; place <= text.size();) {
      const int code = onig_search(pattern_, Bytes(text), end, Bytes(text) + place, end, found.get(), ONIG_OPTION_NONE);
      if (code == ONIG_MISMATCH) break;
      if (code < 0) Refuse("the tokenizer's pattern takes too long on this text");
      const auto first = static_cast<size_t>(found->beg[0]), last = static_cast<size_t>(found->end[0]);
      if (last == first) {  // an empty match splits too
        if (first > done) parts.emplace_back(text.substr(done, first - done), false);
        done = first;
        if (first >= text.size()) break;
        place = first + ReadUtf8(text.substr(first)).size;
        continue;
      }
      if (first > done) parts.emplace_back(text.substr(done, first - done), false);
      parts.emplace_back(text.substr(first, last - first), true);
      place = done = last;
    }
    if (done < text.size()) parts.emplace_back(text.substr(done), false);
  }

 private:
  regex_t* pattern_ = nullptr;
};

namespace {

std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char byte : text) {
    const auto code = static_cast<unsigned char>(byte);
    const bool plain = code >= 0x80 || std::isalnum(code) != 0;
    escaped += plain ? std::string(1, byte) : std::string("\\") + byte;
  }
  return escaped;
}

}  // namespace

Normalizer::Normalizer(const Field& described) {
  if (described.IsNull()) return;
  const std::string type = described["type"].String();
  if (type == "Sequence") {
    for (const Field& part : described["normalizers"].Items()) {
      const Normalizer one(part);
      forms_.insert(forms_.end(), one.forms_.begin(), one.forms_.end());
    }
    return;
  }
  const std::pair<const char*, int> forms[] = {{"NFC", UTF8PROC_COMPOSE},
                                               {"NFD", UTF8PROC_DECOMPOSE},
                                               {"NFKC", UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
                                               {"NFKD", UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
  for (const auto& [name, options] : forms) {
    if (type == name) forms_.push_back(options | UTF8PROC_STABLE);
  }
  if (forms_.empty()) Refuse("the runtime does not have the normalizer ", type.substr(0, 60), " of this tokenizer");
}

std::string Normalizer::operator()(std::string text) const {
  for (const int form : forms_) {
    utf8proc_uint8_t* made = nullptr;
    const auto size =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                     &made, static_cast<utf8proc_option_t>(form));
    if (size < 0) Refuse(StatusCode::kInternal, utf8proc_errmsg(size));
    text.assign(reinterpret_cast<const char*>(made), static_cast<size_t>(size));
    std::free(made);
  }
  return text;
}

struct SplitStep {
  std::unique_ptr<Pattern> pattern;  // null = no split
  bool only_matches = false;         // drops what is between them
  bool adds_space = false;
};

TextSplitter::TextSplitter(const Field& described) { Add(described); }
TextSplitter::~TextSplitter() = default;

void TextSplitter::Add(const Field& described) {
  const std::string type = described["type"].String();
  if (type == "Sequence") {
    for (const Field& part : described["pretokenizers"].Items()) Add(part);
    return;
  }
  if (is_byte_level_) Refuse("the runtime does not have a step after ByteLevel, as this tokenizer does");
  auto step = std::make_unique<SplitStep>();
  if (type == "ByteLevel") {
    is_byte_level_ = true;  // of the last step
    step->adds_space = described["add_prefix_space"].Bool();
    const bool splits = !described.Has("use_regex") || described["use_regex"].Bool();
    if (splits) step->pattern = std::make_unique<Pattern>(kWords);
  } else if (type == "Digits") {
    step->pattern = std::make_unique<Pattern>(described["individual_digits"].Bool() ? "\\p{N}" : "\\p{N}+");
  } else if (type == "Split") {
    const Field pattern = described["pattern"];
    step->pattern = std::make_unique<Pattern>(pattern.Has("Regex") ? pattern["Regex"].String()
                                                                   : Escaped(pattern["String"].String()));
    const std::string behavior = described["behavior"].String();
    step->only_matches = behavior == "Removed" && described["invert"].Bool();
    if (behavior != "Isolated" && !step->only_matches) {
      Refuse("the runtime does not have the behavior ", behavior.substr(0, 60), " of this tokenizer's Split");
    }
  } else {
    Refuse("the runtime does not have the pre-tokenizer ", type.substr(0, 60), " of this tokenizer");
  }
  steps_.push_back(std::move(step));
}

std::vector<std::string> TextSplitter::operator()(const std::string& text) const {
  std::vector<std::string> words = {text};
  for (const auto& step : steps_) {
    std::vector<std::string> split;
    for (std::string& word : words) {
      if (step->adds_space && word.substr(0, 1) != " ") word.insert(0, " ");
      if (step->pattern == nullptr) {
        split.push_back(std::move(word));
        continue;
      }
      std::vector<std::pair<std::string_view, bool>> parts;
      step->pattern->Split(word, parts);
      for (const auto& [part, matches] : parts) {
        if (matches || !step->only_matches) split.emplace_back(part);
      }
    }
    words.swap(split);
  }
  return words;
}

}  // namespace seqlab
