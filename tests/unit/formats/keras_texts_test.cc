// Goal: what Keras writes of inputs of texts, StringLookup and TextVectorization is taken as Keras means it, in both
// dialects, comes back from a description as it went in; an archive's vocabularies of adapted layers are found; what
// Cairn lacks is refused by the option's and the layer's name, and ONNX by the layer's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_replace.h"
#include "common/formats/keras_archive.h"
#include "common/formats/keras_model.h"
#include "common/formats/keras_vocabulary.h"
#include "common/formats/onnx/onnx_export.h"
#include "common/formats/zip_file.h"
#include "tests/unit/formats/keras_text.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A Sequential model of Keras 2 of one text: the layer behind an input.
std::string Keras2Text(const std::string& type, const std::string& config) {
  return absl::StrCat(R"({"class_name": "Sequential", "config": {"name": "net", "layers": [
    {"class_name": "InputLayer", "config": {"batch_input_shape": [null, 1], "dtype": "string", "sparse": false,
     "ragged": false, "name": "text"}}, )",
                      KerasLayerText(type, "\"name\": \"l\", \"dtype\": \"string\", " + config),
                      R"(]}, "keras_version": "2.15.0", "backend": "tensorflow"})");
}

// The same, Functional, of Keras 3, with the given shape of the input.
std::string Keras3Text(const std::string& type, const std::string& config, const std::string& shape = "[null, 1]") {
  const std::string input =
      absl::StrReplaceAll(Keras3Input("text", shape), {{"\"dtype\": \"float32\"", "\"dtype\": \"string\""}});
  return Keras3Functional(input + ", " + Keras3Node(type, "l", config, Keras3Tensor("text")), "l",
                          R"([["text", 0, 0]])");
}

std::string TextOf(const std::string& json) {
  const absl::StatusOr<KerasModel> read = ReadKerasModel(json);
  return read.ok() ? read->model.layers(1).ShortDebugString() : std::string(read.status().message());
}

TEST(KerasTexts, ConfigsOfBothDialects) {
  struct Case {
    std::string type, config, text;
  };
  const std::vector<Case> cases = {
      {"StringLookup",
       R"("invert": false, "max_tokens": 9, "num_oov_indices": 2, "oov_token": "[UNK]", "mask_token": "", "output_mode":
       "tf_idf", "sparse": false, "pad_to_max_tokens": true, "idf_weights": [0.5, 1.5], "vocabulary": ["a", "\u00e4"],
       "vocabulary_size": 4, "encoding": "utf-8", "oov_method": "floormod")",
       "string_lookup { vocabulary: \"a\" vocabulary: \"\\303\\244\" num_oov_indices: 2 mask_token: \"\" oov_token: "
       "\"[UNK]\" max_tokens: 9 output_mode: TF_IDF idf_weights: 0.5 idf_weights: 1.5 pad_to_max_tokens: true }"},
      {"TextVectorization",
       R"("max_tokens": 100, "standardize": "lower", "split": "character", "ngrams": 2, "output_mode": "int",
       "output_sequence_length": 7, "pad_to_max_tokens": false, "sparse": false, "ragged": false, "vocabulary": ["a"],
       "idf_weights": null, "encoding": "utf-8", "vocabulary_size": 3)",
       "text_vectorization { max_tokens: 100 standardize: LOWER split: CHARACTER ngrams: 1 ngrams: 2 output_mode: INT "
       "output_sequence_length: 7 vocabulary: \"a\" }"},
      {"TextVectorization", R"("standardize": null, "split": null, "ngrams": [1, 3], "vocabulary": ["a"])",
       "text_vectorization { standardize: NO_STANDARDIZATION split: NO_SPLIT ngrams: 1 ngrams: 3 vocabulary: \"a\" }"},
      {"Hashing", R"("num_bins": 5, "salt": null, "mask_value": "none")",
       R"(hashing { num_bins: 5 mask_value: "none" })"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(TextOf(c.type == "Hashing" ? Keras3Text(c.type, c.config) : Keras2Text(c.type, c.config)),
              "name: \"l\" inputs: \"text\" " + c.text);
    EXPECT_EQ(TextOf(Keras3Text(c.type, c.config)), "name: \"l\" inputs: \"text\" " + c.text);
  }
}

TEST(KerasTexts, InputsOfTexts) {
  const auto read = ReadKerasModel(Keras3Text("StringLookup", R"("vocabulary": ["a"])", "[null, 3]"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->model.layers(0).ShortDebugString(), R"(name: "text" input { shape: 3 text: true })");
  const auto scalar = ReadKerasModel(Keras3Text(
      "TextVectorization", R"("vocabulary": ["a"], "split": "whitespace", "output_sequence_length": 3)", "[null]"));
  ASSERT_TRUE(scalar.ok()) << scalar.status();
  EXPECT_EQ(scalar->model.layers(0).ShortDebugString(), R"(name: "text" input { text: true })");
  EXPECT_TRUE(Graph::Build(scalar->model).ok());
}

TEST(KerasTexts, WhatIsLackedIsRefused) {
  struct Case {
    std::string type, config, error;
  };
  const std::vector<Case> cases = {
      {"StringLookup", R"("vocabulary": ["a"], "invert": true)",
       "invert: true is not supported; leave it out: it gives"},
      {"StringLookup", R"("vocabulary": "words.txt")", "vocabulary: \"words.txt\" is not a list of texts"},
      {"StringLookup", R"("vocabulary": ["a", 1])", "vocabulary: 1 is not a text"},
      {"StringLookup", R"("vocabulary": ["a"], "encoding": "latin-1")", "encoding: \"latin-1\" is not supported"},
      {"TextVectorization", R"("vocabulary": ["a"], "ragged": true)", "ragged: true is not supported"},
      {"TextVectorization", R"("vocabulary": ["a"], "standardize": {"class_name": "function"})", "is code of your own"},
      {"TextVectorization", R"("vocabulary": ["a"], "split": "words")", "split: \"words\" is not known"},
      {"TextVectorization", R"("vocabulary": ["a"], "ngrams": 0)", "ngrams: 0 is not a number from 1"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(TextOf(Keras2Text(c.type, c.config)), HasSubstr("layer \"l\" (" + c.type + "): ")) << c.config;
    EXPECT_THAT(TextOf(Keras2Text(c.type, c.config)), HasSubstr(c.error)) << c.config;
  }
}

// Every field, with values that are not its default.
TEST(KerasTexts, ComeBackAsTheyWere) {
  const std::vector<std::string> layers = {
      "string_lookup { vocabulary: ['a', '\xC3\xA4'] }",
      "string_lookup { vocabulary: 'a' num_oov_indices: 0 mask_token: '' oov_token: '?' max_tokens: 6 }",
      "string_lookup { vocabulary: ['a', 'b'] output_mode: TF_IDF idf_weights: [0.25, 0.3] }",
      "string_lookup { vocabulary: 'a' output_mode: COUNT max_tokens: 6 pad_to_max_tokens: true }",
      "text_vectorization { vocabulary: 'a' output_sequence_length: 4 }",
      "text_vectorization { vocabulary: ['a', 'b'] output_mode: TF_IDF idf_weights: [0.25, 0.3] ngrams: [1, 2] "
      "max_tokens: 9 pad_to_max_tokens: true }",
      "text_vectorization { vocabulary: 'a' output_mode: MULTI_HOT standardize: STRIP_PUNCTUATION split: CHARACTER }",
      "text_vectorization { vocabulary: 'a' output_mode: COUNT standardize: NO_STANDARDIZATION split: NO_SPLIT }",
      "hashing { num_bins: 5 mask_value: '3' }",  // of texts: it stays a text
      "hashed_crossing { num_bins: 5 } inputs: ['x', 'x']",
  };
  for (const std::string& layer : layers) {
    SCOPED_TRACE(layer);
    const auto graph = Graph::Build(
        FromText<v1::Model>("layers { name: 'x' input { text: true shape: 1 } } layers { name: 'l' " + layer + " }"));
    ASSERT_TRUE(graph.ok()) << graph.status();
    const auto written = KerasModelJson("m", *graph);
    ASSERT_TRUE(written.ok()) << written.status();
    EXPECT_THAT(*written, HasSubstr("\"dtype\":\"string\""));
    const auto read = ReadKerasModel(*written);
    ASSERT_TRUE(read.ok()) << read.status();
    const auto again = Graph::Build(read->model);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->output().layer.DebugString(), graph->output().layer.DebugString());
    EXPECT_EQ(again->nodes()[0].layer.DebugString(), graph->nodes()[0].layer.DebugString());
  }
}

class Archive {
 public:
  Archive(const std::string& config, const std::vector<ZipMember>& assets) {
    std::string name = (std::filesystem::temp_directory_path() / "cairn_texts_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
    std::vector<ZipMember> members = {{"config.json", config, ""},
                                      {"metadata.json", R"({"keras_version": "3.3.0"})", ""}};
    members.insert(members.end(), assets.begin(), assets.end());
    EXPECT_TRUE(WriteZip(path(), members).ok());
  }
  ~Archive() { std::filesystem::remove_all(dir_); }
  std::string path() const { return dir_ + "/m.keras"; }

 private:
  std::string dir_;
};

// Keras writes what adapt() found beside the config, with the tokens that it puts first.
TEST(KerasTexts, VocabulariesOfAnArchive) {
  const std::string config =
      Keras3Text("TextVectorization", R"("vocabulary": null, "split": "whitespace", "output_sequence_length": 4)");
  const Archive archive(config, {{"assets/layers/text_vectorization/vocabulary.txt", "\n[UNK]\nthe\nd\xC3\xA4\n", ""}});
  const auto json = ReadKerasArchiveConfig(archive.path());
  ASSERT_TRUE(json.ok()) << json.status();
  const auto read = ReadKerasModel(*json);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->model.layers(1).text_vectorization().vocabulary(), ElementsAre("", "[UNK]", "the", "d\xC3\xA4"));
  EXPECT_TRUE(Graph::Build(read->model).ok());
  // Where the config has a vocabulary, that counts.
  const Archive own(Keras3Text("StringLookup", R"("vocabulary": ["a"])"),
                    {{"assets/layers/string_lookup/vocabulary.txt", "[UNK]\nb", ""}});
  EXPECT_THAT(ReadKerasModel(ReadKerasArchiveConfig(own.path()).value())->model.layers(1).string_lookup().vocabulary(),
              ElementsAre("a"));
}

TEST(KerasTexts, VocabulariesOfAnArchiveThatAreNone) {
  const std::string numbers =
      Keras3Functional(Keras3Input("image", "[null, 4]") + ", " +
                           Keras3Node("IntegerLookup", "l", R"("vocabulary": null)", Keras3Tensor("image")),
                       "l");
  const Archive integers(numbers, {{"assets/layers/integer_lookup/vocabulary.txt", "-1\n5\n7", ""}});
  EXPECT_THAT(
      ReadKerasModel(ReadKerasArchiveConfig(integers.path()).value())->model.layers(1).integer_lookup().vocabulary(),
      ElementsAre(-1, 5, 7));
  struct Case {
    std::string config, bytes, error;
  };
  const std::vector<Case> cases = {
      {numbers, "-1\nfive", "layer \"l\": its vocabulary.txt has five, which is not a whole number"},
      {Keras3Text("StringLookup", R"("vocabulary": null, "output_mode": "tf_idf")"), "[UNK]\na",
       "layer \"l\" (StringLookup): its idf_weights are not in the description"},
      {Keras3Text("StringLookup", R"("vocabulary": null)"), "\xFF", "layer \"l\": its vocabulary.txt is not UTF-8"},
  };
  for (const Case& c : cases) {
    const char* type = c.config == numbers ? "integer_lookup" : "string_lookup";
    const Archive archive(c.config, {{absl::StrCat("assets/layers/", type, "/vocabulary.txt"), c.bytes, ""}});
    EXPECT_THAT(std::string(ReadKerasArchiveConfig(archive.path()).status().message()), HasSubstr(c.error));
  }
}

// A model that is adapted by Cairn can be read before.
TEST(KerasTexts, PlacesAreHeld) {
  Json json = Json::parse(Keras3Text("TextVectorization", R"("vocabulary": null, "output_mode": "tf_idf")"));
  EXPECT_THAT(HoldKerasPlaces(&json), ElementsAre("l"));
  const auto read = ReadKerasModel(json.dump());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(Graph::Build(read->model).ok());
  Json whole = Json::parse(Keras3Text("StringLookup", R"("vocabulary": ["a"])"));
  EXPECT_THAT(HoldKerasPlaces(&whole), ElementsAre());
}

TEST(KerasTexts, OnnxHasNoTexts) {
  const auto graph =
      Graph::Build(FromText<v1::Model>("layers { name: 'x' input { text: true shape: 1 } } layers { string_lookup { "
                                       "vocabulary: 'a' output_mode: ONE_HOT "
                                       "} } layers { dense { units: 1 } }"));
  ASSERT_TRUE(graph.ok()) << graph.status();
  const std::vector<float> space(static_cast<size_t>(graph->space_size()));
  const auto exported = ExportOnnx(*graph, space, {});
  EXPECT_EQ(exported.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(exported.status().message()), HasSubstr("it takes texts, which ONNX's operators do not"));
}

}  // namespace
}  // namespace cairn
