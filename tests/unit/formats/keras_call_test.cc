// Goal: every argument of every layer's call is honoured or refused by its name, in both dialects of Keras, by name and
// by place: none is skipped. All layers, all arguments and values of every kind are gone through; what is to come of
// each is written down a second time.
#include "common/formats/keras_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/layer_type.h"

namespace cairn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kTensor[] =
    R"({"class_name": "__keras_tensor__", "config": {"shape": [null, 6, 8], "keras_history": ["x", 0, 0]}})";

// The types that Cairn has, and one that it does not.
const std::vector<std::string>& Types() {
  static const std::vector<std::string> types = [] {
    std::vector<std::string> all = {
        "RandomFlip",       "RandomRotation", "RandomZoom", "RandomTranslation", "RandomCrop",
        "RandomBrightness", "RandomContrast", "Sequential", "Functional",        "Model",
        "TFSMLayer"};
    for (const LayerType* type : LayerTypes()) {
      if (type->kind == LayerKind::kInput) continue;
      for (const KerasClass& keras : type->keras) all.push_back(keras.name);
    }
    return all;
  }();
  return types;
}

bool IsOneOf(const std::string& type, const std::vector<std::string>& types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

bool Attends(const std::string& type) {
  return IsOneOf(type, {"MultiHeadAttention", "GroupQueryAttention", "GroupedQueryAttention"});
}

bool Recurs(const std::string& type) {
  return IsOneOf(type, {"SimpleRNN", "LSTM", "GRU", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D", "Bidirectional"});
}

const std::vector<std::string>& Arguments() {
  static const std::vector<std::string> arguments = {"training",
                                                     "mask",
                                                     "query_mask",
                                                     "value_mask",
                                                     "key_mask",
                                                     "attention_mask",
                                                     "return_attention_scores",
                                                     "use_causal_mask",
                                                     "initial_state",
                                                     "flash_attention",
                                                     "noise_shape",
                                                     "Training"};
  return arguments;
}

// The tensor that every call has, by place as in Keras, followed by the rest of the call.
std::string Keras3(const std::string& type, const std::string& more_args, const std::string& kwargs) {
  const std::string first = Attends(type) ? absl::StrCat(kTensor, ", ", kTensor) : kTensor;
  return absl::StrCat(R"([{"args": [)", first, more_args, R"(], "kwargs": {)", kwargs, "}}]");
}
std::string Keras2(const std::string& type, const std::string& kwargs) {
  const bool attends = Attends(type);
  return absl::StrCat(R"([[["x", 0, 0, {)", attends ? R"("value": ["x", 0, 0])" : "",
                      attends && !kwargs.empty() ? ", " : "", kwargs, "}]]]");
}

absl::StatusOr<KerasCall> Read(const std::string& type, const std::string& nodes) {
  return ReadKerasCall("l", type, Json::parse(nodes).at(0), {});
}

enum class Outcome { kNothing, kInference, kCausal, kState, kMask, kRefused };

Outcome Wanted(const std::string& type, const std::string& argument, const std::string& value, bool keras3) {
  const bool attends = Attends(type);
  const bool scores = attends || IsOneOf(type, {"Attention", "AdditiveAttention"});
  if (Recurs(type) && argument == "initial_state") {
    return value == "null" ? Outcome::kNothing : value == "tensor" ? Outcome::kState : Outcome::kRefused;
  }
  if (argument == "training") {
    return value == "null" ? Outcome::kNothing : value == "false" ? Outcome::kInference : Outcome::kRefused;
  }
  if (argument == "mask" || (attends && absl::EndsWith(argument, "_mask") && argument != "use_causal_mask")) {
    // Keras 3 names the masks that it made itself. There is no mask for the key.
    const bool made = keras3 && value == "tensor" && argument != "attention_mask" && argument != "key_mask";
    return value == "null" ? Outcome::kNothing : made ? Outcome::kMask : Outcome::kRefused;
  }
  if (scores && argument == "return_attention_scores") {
    return value == "null" || value == "false" ? Outcome::kNothing : Outcome::kRefused;
  }
  if (scores && argument == "use_causal_mask") {
    if (value == "true") return Outcome::kCausal;
    return value == "null" || value == "false" ? Outcome::kNothing : Outcome::kRefused;
  }
  return Outcome::kRefused;
}

void Expect(const std::string& type, const std::string& argument, const std::string& value, const std::string& nodes) {
  SCOPED_TRACE(absl::StrCat(type, ": ", nodes));
  const Outcome wanted = Wanted(type, argument, value, absl::StartsWith(nodes, "[{"));
  const absl::StatusOr<KerasCall> call = Read(type, nodes);
  if (wanted == Outcome::kRefused) {
    EXPECT_EQ(call.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(
        std::string(call.status().message()),
        testing::AllOf(HasSubstr(absl::StrCat("layer \"l\" (", type, "): ")), HasSubstr(argument), HasSubstr("; ")));
    return;
  }
  ASSERT_TRUE(call.ok()) << call.status();
  EXPECT_EQ(call->inference, wanted == Outcome::kInference);
  EXPECT_EQ(call->causal, wanted == Outcome::kCausal);
  ASSERT_EQ(call->masks.size(), wanted == Outcome::kMask ? 1u : 0u);
  if (wanted == Outcome::kMask) {
    EXPECT_EQ(call->masks[0].argument, argument);
    EXPECT_EQ(call->masks[0].tensor, "x");
    EXPECT_EQ(call->masks[0].input, argument == "value_mask" ? 1u : 0u);
  }
  const bool two = Attends(type) || wanted == Outcome::kState;
  EXPECT_EQ(call->inputs, std::vector<std::string>(two ? 2 : 1, "x"));
}

TEST(KerasCall, EveryArgumentIsHonouredOrRefused) {
  for (const std::string& type : Types()) {
    for (const std::string& argument : Arguments()) {
      for (const std::string value : {"null", "false", "true", "0", "1", "0.5", "\"x\"", "[1, 2]", "{}", "tensor"}) {
        const bool tensor = value == "tensor";
        const std::string name = absl::StrCat("\"", argument, "\": ");
        Expect(type, argument, value, Keras3(type, "", name + (tensor ? kTensor : value)));
        Expect(type, argument, value, Keras2(type, name + (tensor ? R"(["x", 0, 0])" : value)));
      }
    }
  }
}

// In the order of Keras' call() signatures, behind the inputs.
TEST(KerasCall, APlaceStandsForItsArgument) {
  std::map<std::string, std::vector<std::string>> arguments = {
      {"Attention", {"mask", "return_attention_scores", "training", "use_causal_mask"}},
      {"AdditiveAttention", {"mask", "return_attention_scores", "training", "use_causal_mask"}},
      {"BatchNormalization", {"training", "mask"}},
      {"TimeDistributed", {"training", "mask"}},
      {"Softmax", {"mask"}},
      {"GlobalAveragePooling1D", {"mask"}}};
  for (const char* type : {"Dense", "Dropout", "AlphaDropout", "SpatialDropout1D", "SpatialDropout2D",
                           "SpatialDropout3D", "GaussianDropout", "GaussianNoise"}) {
    arguments[type] = {"training"};
  }
  for (const char* type : {"MultiHeadAttention", "GroupQueryAttention", "GroupedQueryAttention"}) {
    arguments[type] = {"query_mask", "value_mask",     "key_mask", "attention_mask", "return_attention_scores",
                       "training",   "use_causal_mask"};
  }
  for (const char* type : {"Sequential", "Functional", "Model"}) arguments[type] = {"training", "mask"};
  arguments["SpectralNormalization"] = {"training"};
  for (const std::string& type : Types()) {
    if (absl::StartsWith(type, "Random")) arguments[type] = {"training"};
    if (Recurs(type)) arguments[type] = {"initial_state", "mask", "training"};
    std::string before = Attends(type) ? ", null" : "";  // the key
    for (const std::string& argument : arguments[type]) {
      for (const std::string value : {"null", "false", "true", "0", "tensor"}) {
        Expect(type, argument, value,
               Keras3(type, absl::StrCat(before, ", ", value == "tensor" ? kTensor : value), ""));
      }
      before += ", null";
    }
    const std::string one_more = Keras3(type, before + ", null", "");
    EXPECT_THAT(std::string(Read(type, one_more).status().message()), HasSubstr("positional arguments"))
        << type << one_more;
  }
}

TEST(KerasCall, InputsComeByPlaceOrByName) {
  EXPECT_THAT(Read("Dense", absl::StrCat(R"([{"args": [], "kwargs": {"inputs": )", kTensor, "}}]"))->inputs,
              ElementsAre("x"));
  EXPECT_THAT(Read("RandomFlip", absl::StrCat(R"([{"args": [], "kwargs": {"data": )", kTensor, "}}]"))->inputs,
              ElementsAre("x"));
  EXPECT_THAT(Read("Add", absl::StrCat(R"([{"args": [[)", kTensor, ",", kTensor, R"(]], "kwargs": {}}])"))->inputs,
              ElementsAre("x", "x"));
  EXPECT_THAT(Read("Add", R"([[["a", 0, 0, {"training": false}], ["b", 0, 0, {"training": false}]]])")->inputs,
              ElementsAre("a", "b"));
  const auto of = [](const char* name) {
    return absl::StrCat(R"({"class_name": "__keras_tensor__", "config": {"keras_history": [")", name, R"(", 0, 0]}})");
  };
  struct Case {
    std::vector<std::string> args, kwargs;
    int keywords;
  };
  for (const Case& c : std::vector<Case>{{{"q", "v", "k"}, {}, 0},
                                         {{"q", "v"}, {"key"}, 1},
                                         {{"q"}, {"value", "key"}, 2},
                                         {{"q"}, {"key", "value"}, 2},
                                         {{}, {"query", "value", "key"}, 3},
                                         {{}, {"key", "query", "value"}, 3}}) {
    std::vector<std::string> args, kwargs;
    for (const std::string& name : c.args) args.push_back(of(name.c_str()));
    for (const std::string& name : c.kwargs)
      kwargs.push_back(absl::StrCat("\"", name, "\": ", of(name.substr(0, 1).c_str())));
    const std::string nodes = absl::StrCat(R"([{"args": [)", absl::StrJoin(args, ","), R"(], "kwargs": {)",
                                           absl::StrJoin(kwargs, ","), "}}]");
    const absl::StatusOr<KerasCall> call = Read("MultiHeadAttention", nodes);
    ASSERT_TRUE(call.ok()) << call.status();
    EXPECT_THAT(call->inputs, ElementsAre("q", "v", "k")) << nodes;
    EXPECT_EQ(call->keyword_inputs, c.keywords) << nodes;
  }
}

TEST(KerasCall, SaysWhatIsWrongWithTheTensors) {
  const auto error = [](const std::string& type, const std::string& nodes) {
    return std::string(Read(type, nodes).status().message());
  };
  EXPECT_EQ(error("MultiHeadAttention",
                  absl::StrCat(R"([{"args": [)", kTensor, R"(], "kwargs": {"query": )", kTensor, "}}]")),
            "layer \"l\" (MultiHeadAttention): it is called with two tensors as query");
  EXPECT_EQ(error("MultiHeadAttention", R"([[["x", 0, 0, {}]]])"),
            "layer \"l\" (MultiHeadAttention): it is called without a value");
  EXPECT_EQ(error("Add", R"([[["a", 0, 0, {"training": false}], ["b", 0, 0, {}]]])"),
            "layer \"l\" (Add): the arguments of its call differ from tensor to tensor");
  EXPECT_EQ(error("Add", absl::StrCat(R"([{"args": [[)", kTensor, R"(, null]], "kwargs": {}}])")),
            "layer \"l\" (Add): it is called with null, which is not a layer's output");
  EXPECT_EQ(error("Dense", R"([{"args": [{"image": 1}], "kwargs": {}}])"),
            "layer \"l\" (Dense): it is called with {...}, which is not a layer's output");
}

// Keras 2 counts a model's own node as the first.
TEST(KerasCall, TakesTheOutputOfAModelOfKeras2) {
  const Json nodes = Json::parse(R"([[["base", 1, 0, {}]]])");
  EXPECT_THAT(ReadKerasCall("l", "Dense", nodes[0], {{"base", 1}})->inputs, ElementsAre("base"));
  EXPECT_THAT(ReadKerasCall("l", "Dense", nodes[0], {})->inputs, ElementsAre(KerasTensorName("base", 1)));
  EXPECT_FALSE(ReadKerasCall("l", "Dense", nodes[0], {{"base", 2}}).ok());
}

}  // namespace
}  // namespace cairn
