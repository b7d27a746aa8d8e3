#include "manifest.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "error.h"
#include "files.h"

namespace seqlab {
namespace {

// Makes the graph of a recurrent language model.
std::string Graph(const std::string& file, const std::string& time) {
  const std::string scored = time == "1" ? "" : R"({"name": "scored", "dtype": "int64", "dims": ["K"]}, )";
  return R"({"file": ")" + file + R"(", "inputs": [{"name": "tokens", "dtype": "int64", "dims": ["B", )" + time +
         R"(]}, {"name": "pad_mask", "dtype": "bool", "dims": ["B", )" + time + R"(]}, )" + scored +
         R"({"name": "state_h", "dtype": "float32", "dims": ["B", 8]}],
            "outputs": [{"name": "logits", "dtype": "float32", "dims": ["B", )" +
         (time == "1" ? "1" : R"("K")") + R"(, 11]}, {"name": "new_state_h", "dtype": "float32", "dims": ["B", 8]}]})";
}

// Makes a manifest, with one field a line.
std::string Whole() {
  std::string files;
  for (const char* name : {"golden.npz", "model.onnx", "step.onnx", "weights.bin", "tokenizer/tokenizer.json"}) {
    files += Join(files.empty() ? "" : ", ", "\"", name, "\": \"", std::string(64, 'a'), "\"");
  }
  return R"({"format": "seqlab-bundle",
"version": 10,
"target": "portable",
"min_onnxruntime": "1.30",
"precision": "fp32",
"proof": "full",
"vocab_size": 11,
"max_seq_len": null,
"max_source_len": null,
"seq_len": 32,
"stop_ids": [2, 1],
"first_call": 1,
"encoder": null,
"tokenizer": "tokenizer",
"source_tokenizer": null,
"labels": [],
"taps": null,
"guess": null,
"in_place": [],
"golden": "golden.npz",
"state": [{"name": "h", "dtype": "float32", "dims": ["B", 8], "initial": 0.5}],
"provenance": {"run_id": "", "commit": "", "seqlab": "", "torch": "", "onnxruntime": "",
"validation_loss": null, "bundle_validation_loss": null, "validation_loss_interval": null},
"model": )" +
         Graph("model.onnx", R"("T")") + ",\n\"step\": " + Graph("step.onnx", "1") + ",\n\"files\": {" + files + "}\n}";
}

// Makes a manifest in which the first `from` is replaced.
std::string Changed(const std::string& from, const std::string& to) {
  std::string text = Whole();
  return text.replace(text.find(from), from.size(), to);
}

std::string Refused(const std::string& text) {
  try {
    ParseManifest(text);
  } catch (const Refusal& refusal) {
    return refusal.what();
  }
  return "accepted";
}

TEST(Manifest, IsRead) {
  const Manifest manifest = ParseManifest(Whole());
  EXPECT_EQ(manifest.vocab_size, 11);
  EXPECT_EQ(manifest.max_seq_len, std::nullopt);
  EXPECT_EQ(manifest.Graphs().size(), 2U);
  EXPECT_EQ(manifest.state[0].initial, 0.5);
  EXPECT_EQ(manifest.step->inputs[0].dims[1], Dim(int64_t{1}));
}

TEST(Manifest, OneChangeIsRefusedWithItsPlace) {
  struct Change {
    const char *from, *to, *said;
  };
  const Change changes[] = {
      {"version\": 10", "version\": 11", "it has version 11, this program reads version 10"},
      {"version\": 10", "version\": 8", "it has version 8, this program reads version 10; export it again"},
      {"version\": 10", "version\": \"9\"", "the manifest.version must be a whole number"},
      {"version\": 10", "version\": 10, \"minor\": -1", "the manifest.minor must be a whole number from 0"},
      {"seqlab-bundle", "zip", "it lacks \"format\": \"seqlab-bundle\""},
      {"\"seq_len\"", "\"more\": 1, \"seq_len\"", "the manifest has \"more\", which nothing here knows"},
      {"\"seq_len\"", "\"seq_lens\"", "the manifest lacks seq_len"},
      {"vocab_size\": 11", "vocab_size\": null", "it has a decoder and no vocab_size"},
      {"vocab_size\": 11", "vocab_size\": 12", "model.onnx gives no logits of vocab_size 12"},
      {"vocab_size\": 11", "vocab_size\": 1.5", "the manifest.vocab_size must be a whole number"},
      {"seq_len\": 32", "seq_len\": -1", "the manifest.seq_len must be a whole number from 1"},
      {"seq_len\": 32", "seq_len\": true", "the manifest.seq_len must be a whole number"},
      {"seq_len\": 32", "seq_len\": 99999999999999999999", "the manifest.seq_len must be a whole number"},
      {"seq_len\": 32", "seq_len\": 1e999", "it has a number that is too large for float64"},
      {"[2, 1]", "[2, 11]", "stop_ids has 11, which is outside the vocabulary"},
      {"[2, 1]", "[-1]", "the manifest.stop_ids[0] must be a whole number from 0"},
      {"fp32", "fp8", "the manifest.precision must be one of bf16, fp16, fp32"},
      {"portable", "cuda", "the manifest.target must be one of cuda-graph, ort, portable, got \"cuda\""},
      {"[\"B\", 8]", "[\"B\", \"C\"]", "state entry h has the dimension C, but there is no max_seq_len"},
      {"1.30", "new", "\"new\" is not a version of onnxruntime"},
      {"int64", "int32", "the manifest.model.inputs[0].dtype must be one of bool, float16"},
      {"[\"B\", \"T\"]", "[\"X\", \"T\"]", "the manifest.model.inputs[0].dims[0] must be one of B, C"},
      {"[\"B\", \"T\"]", "[\"B\", -3]", "the manifest.model.inputs[0].dims[1] must be a whole number"},
      {"\"logits\"", "\"scores\"", "model.onnx gives no logits"},
      {"\"tokens\"", "\"ids\"", "model.onnx takes no tokens"},
      {"\"scored\"", "\"wanted\"", "model.onnx takes no scored"},
      {"0.5", "\"zero\"", "the manifest.state[0].initial must be a number"},
      {"0.5", "null", "state entry h has no initial value and the bundle has no encoder to supply one"},
      {"[\"B\", 8], \"initial", "[8, \"B\"], \"initial", "the manifest.state[0].dims must begin with B"},
      {": \"tokenizer\"", ": \"../tokenizer\"", "\"../tokenizer\" is not a path inside the bundle"},
      {": \"golden.npz\"", ": \"other.npz\"", "it gives no sha256 of other.npz"},
      {": \"model.onnx\"", ": \"/tmp/model.onnx\"", "it gives no sha256 of /tmp/model.onnx"},
      {"\"weights.bin\"", "\"../weights.bin\"", "\"../weights.bin\" is not a path inside the bundle"},
      {"bin\": \"aa", "bin\": \"AA", "the sha256 of weights.bin is \"AA"},
      {"\"labels\": []", "\"labels\": [1]", "the manifest.labels[0] must be a string, got 1"},
      {"\"commit\"", "\"host\": \"\", \"commit\"", "the manifest.provenance has \"host\", which nothing here knows"},
  };
  EXPECT_EQ(Refused(Whole()), "accepted");
  for (const Change& change : changes) {
    const std::string said = Refused(Changed(change.from, change.to));
    EXPECT_EQ(said.rfind(change.said, 0), 0U) << change.to << ": " << said;
  }
}

TEST(Manifest, UnknownFieldsOfANewerMinorVersionAreIgnored) {
  const std::string minor = Join("\"version\": 10, \"minor\": ", kMinor + 1);
  const auto newer = [&](const char* from, const char* to) {
    std::string text = Changed("\"version\": 10", minor);
    return Refused(text.replace(text.find(from), std::strlen(from), to));
  };
  EXPECT_EQ(newer("\"seq_len\"", "\"more\": 1, \"seq_len\""), "accepted");
  EXPECT_EQ(newer("\"commit\"", "\"more\": 1, \"commit\""), "accepted");
  EXPECT_EQ(newer("\"dtype\"", "\"more\": 1, \"dtype\""), "accepted");
  EXPECT_EQ(newer("\"initial\"", "\"more\": 1, \"initial\""), "accepted");
  EXPECT_EQ(newer("\"inputs\"", "\"more\": 1, \"inputs\""), "accepted");
  EXPECT_EQ(newer("\"seq_len\"", "\"seq_lens\""), "the manifest lacks seq_len");
  EXPECT_EQ(Refused(Changed("\"version\": 10", Join("\"version\": 10, \"minor\": ", kMinor, ", \"more\": 1"))),
            "the manifest has \"more\", which nothing here knows");
}

TEST(Manifest, EachFieldIsNeeded) {
  const std::string whole = Whole();
  for (size_t line = whole.find("\n\"") + 1; line != 0 && line < whole.size(); line = whole.find("\n\"", line) + 1) {
    const size_t end = whole.find(": ", line);
    std::string other = whole;
    EXPECT_NE(Refused(other.insert(end - 1, "_")), "accepted") << whole.substr(line, end - line);
  }
}

TEST(Manifest, WhatIsNoJsonIsRefused) {
  EXPECT_EQ(Refused("{"), "it is not JSON, at byte 2");
  EXPECT_EQ(Refused("[]"), "it lacks \"format\": \"seqlab-bundle\"");
  EXPECT_NE(Refused(std::string(100000, '[')), "accepted");
}

// Makes a manifest whose state has `numbers` numbers.
std::string WithState(int64_t numbers) {
  std::string text = Whole();
  const std::string eight = "[\"B\", 8]";
  for (size_t at = text.find(eight); at != std::string::npos; at = text.find(eight)) {
    text.replace(at, eight.size(), Join("[\"B\", ", numbers, "]"));
  }
  return text;
}

TEST(Manifest, ALimitAcceptsItsOwnValueAndRefusesTheNext) {
  const int64_t largest = int64_t{1} << 40, numbers = int64_t{1} << 29;
  const auto with_seq_len = [](int64_t length) { return Changed("seq_len\": 32", Join("seq_len\": ", length)); };
  EXPECT_EQ(Refused(with_seq_len(largest)), "accepted");
  EXPECT_EQ(Refused(with_seq_len(largest + 1)).rfind("the manifest.seq_len must be", 0), 0U);
  EXPECT_EQ(Refused(WithState(numbers)), "accepted");
  EXPECT_EQ(Refused(WithState(numbers + 1)).rfind("its state takes", 0), 0U);
}

// A bundle's folder of sparse files, all damaged: the tests read what is reported of each.
class Sizes : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(home_ / "tokenizer"); }
  void TearDown() override { std::filesystem::remove_all(home_); }

  void Write(const std::string& name, uintmax_t size) const {
    std::ofstream(home_ / name).close();
    std::filesystem::resize_file(home_ / name, size);
  }

  std::map<std::string, std::string> Found() const {
    std::ofstream(home_ / "manifest.json") << Whole();
    std::ofstream(home_ / "manifest.sha256") << Sha256OfFile(home_ / "manifest.json");
    return FindDamage(home_, ParseManifest(Whole()));
  }

  const std::filesystem::path home_ =
      std::filesystem::temp_directory_path() / ("seqlab-sizes-" + std::to_string(getpid()));
};

TEST_F(Sizes, AGraphHas32MiBAtMost) {
  const uintmax_t most = uintmax_t{1} << 25;
  Write("model.onnx", most);
  Write("step.onnx", most + 1);
  auto found = Found();
  EXPECT_EQ(found["model.onnx"], "its sha256 is not the manifest's");
  EXPECT_EQ(found["step.onnx"], "it has 33554433 bytes, a graph has at most 33554432");
}

TEST_F(Sizes, AllFilesButTheWeightsHaveAGibibyteAtMost) {
  for (const char* name : {"model.onnx", "step.onnx"}) Write(name, 0);
  const uintmax_t most = uintmax_t{1} << 30;
  Write("golden.npz", most + 1);
  EXPECT_EQ(Found()["golden.npz"], "all files but the weights have 1073741825 bytes, at most 1073741824 are accepted");
}

TEST_F(Sizes, AManifestHas32MiBAtMost) {
  Write("manifest.json", (uintmax_t{1} << 25) + 1);
  try {
    LoadManifest(home_);
    FAIL();
  } catch (const Refusal& refusal) {
    EXPECT_NE(std::string(refusal.what()).find("33554433 bytes, a manifest has at most 33554432"), std::string::npos);
  }
}

TEST(Versions, AreComparedByTheirParts) {
  EXPECT_LT(ParseVersion("1.9"), ParseVersion("1.30.2"));
  EXPECT_EQ(ParseVersion("1.30.2"), std::make_pair(1, 30));
}

}  // namespace
}  // namespace seqlab
