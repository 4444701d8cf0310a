// Goal: whatever a layer's message can say comes back from the description in a .keras archive as it went in. Every
// field of every layer is found by reflection and set to values that are not its default, one at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/formats/keras_archive.h"
#include "common/formats/keras_model.h"
#include "common/model/graph.h"
#include "common/model/recurrent.h"
#include "tests/unit/formats/keras_field_values.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// A layer of each kind that Graph::Build takes, in a place where it fits. `inputs`: on which it stands.
struct Kind {
  std::string input, layer, inputs = "'x'";
};

const std::map<std::string, Kind>& Kinds() {
  const std::string image = "[9, 9, 4]", volume = "[9, 9, 9, 4]", volumes = "[2, 9, 9, 9, 4]", sequence = "[12, 4]",
                    flat = "[8]";
  static const std::map<std::string, Kind> kinds = {
      {"rescaling", {image, "rescaling { scale: 0.5 }"}},
      {"conv2d", {image, "conv2d { filters: 4 kernel_size: 2 }"}},
      {"depthwise_conv2d", {image, "depthwise_conv2d { kernel_size: 2 }"}},
      {"batch_normalization", {image, "batch_normalization {}"}},
      {"activation", {image, "activation { activation: RELU }"}},
      {"activity_regularization", {image, "activity_regularization { l1: 0.5 }"}},
      {"max_pooling2d", {image, "max_pooling2d {}"}},
      {"average_pooling2d", {image, "average_pooling2d {}"}},
      {"global_average_pooling2d", {image, "global_average_pooling2d {}"}},
      {"add", {image, "add {}", "'x', 'x'"}},
      {"concatenate", {image, "concatenate {}", "'x', 'x'"}},
      {"flatten", {image, "flatten {}"}},
      {"dense", {flat, "dense { units: 3 }"}},
      {"dropout", {image, "dropout { rate: 0.5 }"}},
      {"zero_padding2d", {image, "zero_padding2d {}"}},
      {"layer_normalization", {image, "layer_normalization {}"}},
      {"group_normalization", {image, "group_normalization { groups: 1 }"}},
      {"embedding", {flat, "embedding { input_dim: 3 output_dim: 4 }"}},
      {"global_average_pooling1d", {sequence, "global_average_pooling1d {}"}},
      {"max_pooling1d", {sequence, "max_pooling1d {}"}},
      {"average_pooling1d", {sequence, "average_pooling1d {}"}},
      {"conv1d", {sequence, "conv1d { filters: 4 kernel_size: 2 }"}},
      {"separable_conv2d", {image, "separable_conv2d { filters: 3 kernel_size: 2 }"}},
      {"conv2d_transpose", {image, "conv2d_transpose { filters: 3 kernel_size: 2 }"}},
      {"up_sampling2d", {image, "up_sampling2d {}"}},
      {"spatial_dropout2d", {image, "spatial_dropout2d { rate: 0.5 }"}},
      {"reshape", {flat, "reshape { target_shape: [2, 4] }"}},
      {"permute", {sequence, "permute { dims: [2, 1] }"}},
      {"multiply", {image, "multiply {}", "'x', 'x'"}},
      {"average", {image, "average {}", "'x', 'x'"}},
      {"maximum", {image, "maximum {}", "'x', 'x'"}},
      {"subtract", {image, "subtract {}", "'x', 'x'"}},
      {"minimum", {image, "minimum {}", "'x', 'x'"}},
      {"conv3d", {volume, "conv3d { filters: 4 kernel_size: 2 }"}},
      {"depthwise_conv1d", {sequence, "depthwise_conv1d { kernel_size: 2 }"}},
      {"separable_conv1d", {sequence, "separable_conv1d { filters: 3 kernel_size: 2 }"}},
      {"conv1d_transpose", {sequence, "conv1d_transpose { filters: 3 kernel_size: 2 }"}},
      {"conv3d_transpose", {volume, "conv3d_transpose { filters: 3 kernel_size: 2 }"}},
      {"max_pooling3d", {volume, "max_pooling3d {}"}},
      {"average_pooling3d", {volume, "average_pooling3d {}"}},
      {"global_average_pooling3d", {volume, "global_average_pooling3d {}"}},
      {"global_max_pooling3d", {volume, "global_max_pooling3d {}"}},
      {"zero_padding3d", {volume, "zero_padding3d {}"}},
      {"cropping3d", {volume, "cropping3d {}"}},
      {"up_sampling3d", {volume, "up_sampling3d {}"}},
      {"global_max_pooling1d", {sequence, "global_max_pooling1d {}"}},
      {"zero_padding1d", {sequence, "zero_padding1d {}"}},
      {"cropping1d", {sequence, "cropping1d {}"}},
      {"up_sampling1d", {sequence, "up_sampling1d {}"}},
      {"global_max_pooling2d", {image, "global_max_pooling2d {}"}},
      {"resizing", {image, "resizing { height: 3 width: 5 }"}},
      {"center_crop", {image, "center_crop { height: 3 width: 5 }"}},
      {"adaptive_average_pooling1d", {sequence, "adaptive_average_pooling1d { output_size: 2 }"}},
      {"adaptive_max_pooling1d", {sequence, "adaptive_max_pooling1d { output_size: 2 }"}},
      {"adaptive_average_pooling2d", {image, "adaptive_average_pooling2d { output_size: 2 }"}},
      {"adaptive_max_pooling2d", {image, "adaptive_max_pooling2d { output_size: 2 }"}},
      {"adaptive_average_pooling3d", {volume, "adaptive_average_pooling3d { output_size: 2 }"}},
      {"adaptive_max_pooling3d", {volume, "adaptive_max_pooling3d { output_size: 2 }"}},
      {"cropping2d", {image, "cropping2d { cropping: 1 }"}},
      {"prelu", {image, "prelu {}"}},
      {"normalization", {image, "normalization {}"}},
      {"alpha_dropout", {image, "alpha_dropout { rate: 0.5 }"}},
      {"gaussian_noise", {image, "gaussian_noise { stddev: 0.5 }"}},
      {"gaussian_dropout", {image, "gaussian_dropout { rate: 0.5 }"}},
      {"spatial_dropout3d", {volume, "spatial_dropout3d { rate: 0.5 }"}},
      {"spatial_dropout1d", {sequence, "spatial_dropout1d { rate: 0.5 }"}},
      {"repeat_vector", {flat, "repeat_vector { n: 3 }"}},
      {"rms_normalization", {image, "rms_normalization {}"}},
      {"unit_normalization", {image, "unit_normalization {}"}},
      {"attention", {sequence, "attention {}", "'x', 'x'"}},
      {"additive_attention", {sequence, "additive_attention {}", "'x', 'x'"}},
      {"einsum_dense", {sequence, "einsum_dense { equation: 'abc,cd->abd' output_shape: [-1, 3] bias_axes: 'd' }"}},
      {"dot", {sequence, "dot { axes: 2 }", "'x', 'x'"}},
      {"multi_head_attention", {sequence, "multi_head_attention { num_heads: 2 key_dim: 3 }", "'x', 'x'"}},
      {"group_query_attention",
       {sequence, "group_query_attention { head_dim: 3 num_query_heads: 8 num_key_value_heads: 2 }", "'x', 'x'"}},
      {"simple_rnn", {sequence, "simple_rnn { units: 3 }"}},
      {"lstm", {sequence, "lstm { units: 3 }"}},
      {"gru", {sequence, "gru { units: 3 }"}},
      {"conv_lstm1d", {image, "conv_lstm1d { filters: 3 kernel_size: 2 }"}},
      {"conv_lstm2d", {volume, "conv_lstm2d { filters: 3 kernel_size: 2 }"}},
      {"conv_lstm3d", {volumes, "conv_lstm3d { filters: 3 kernel_size: 2 }"}},
      {"masking", {sequence, "masking {}"}},
  };
  return kinds;
}

v1::Model ModelOf(const std::string& kind) {
  const Kind& k = Kinds().at(kind);
  return FromText<v1::Model>(absl::StrCat("layers { name: 'x' input { shape: ", k.input,
                                          " } } layers { name: 'y' inputs: [", k.inputs, "] ", k.layer, " }"));
}

Message* LayerMessage(v1::Model* model, const std::string& kind) {
  v1::Layer* layer = model->mutable_layers(1);
  return layer->GetReflection()->MutableMessage(layer, layer->GetDescriptor()->FindFieldByName(kind));
}

// Its list has every field and every value of the initializer's enums.
TEST(KerasRoundTripTest, InitializersAreAllThere) {
  std::map<std::string, std::set<int>> seen;
  for (const auto& message : Initializers()) {
    std::vector<const FieldDescriptor*> fields;
    message->GetReflection()->ListFields(*message, &fields);
    for (const FieldDescriptor* field : fields) {
      seen[field->name()].insert(field->enum_type() ? message->GetReflection()->GetEnumValue(*message, field) : 0);
    }
  }
  const Descriptor* descriptor = v1::Initializer::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    // UNSPECIFIED is never there; of mode and distribution a default is what comes of it.
    const int values =
        field->enum_type() == nullptr ? 1 : field->enum_type()->value_count() - (field->name() == "kind" ? 1 : 2);
    EXPECT_EQ(seen[field->name()].size(), static_cast<size_t>(values)) << field->name();
  }
}

// The message with the field set to one value and another.
std::vector<std::unique_ptr<Message>> Altered(const std::string& kind, const Message& base,
                                              const FieldDescriptor* field) {
  std::vector<std::unique_ptr<Message>> all;
  const Reflection* r = base.GetReflection();
  const auto add = [&](const auto& set) {
    std::unique_ptr<Message> m(base.New());
    m->CopyFrom(base);
    set(m.get());
    all.push_back(std::move(m));
  };
  if (field->is_repeated()) {  // pairs of kernels and the like; of a permutation or a shape another, of paddings four
    const auto numbers = [&](std::initializer_list<int32_t> list) {
      add([&](Message* m) {
        r->ClearField(m, field);
        for (const int32_t number : list) r->AddInt32(m, field, number);
      });
    };
    const std::string name = field->name(), layer = field->containing_type()->name();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {  // with the one that it goes with
      add([&](Message* m) {
        const bool normalizes = layer == "Normalization";
        for (const char* both : {normalizes ? "mean" : "scales", normalizes ? "variance" : "offsets"}) {
          const FieldDescriptor* const of = m->GetDescriptor()->FindFieldByName(both);
          r->ClearField(m, of);
          for (const float number : {0.5f, 2.0f, 0.3f, 1.0f}) r->AddFloat(m, of, number);
        }
        if (layer == "Rescaling") r->ClearField(m, m->GetDescriptor()->FindFieldByName("scale"));
      });
    } else if (name == "noise_shape") {
      numbers({1, -1, 1});
      numbers({-1, -1, 1});
    } else if (name == "axis") {
      numbers({-1});
      if (layer == "LayerNormalization" || layer == "UnitNormalization" || layer == "Normalization") numbers({2, 3});
      if (layer == "Normalization") numbers({1});
    } else if (name == "target_shape") {
      numbers({4, 2});
      numbers({-1, 2});
    } else if (name == "output_shape") {  // an EinsumDense's
      numbers({-1, 5});
      numbers({12, 3});
    } else if (name == "dims") {
      numbers({1, 2});
    } else if (name == "axes") {
      numbers({1});
      numbers({1, 1});
      numbers({-1, 2});
    } else if (name == "output_padding") {  // below the stride of 1
      numbers({0});
    } else if (absl::EndsWith(kind, "1d") || absl::EndsWith(kind, "1d_transpose")) {  // of both ends, or of one axis
      numbers({3});
      if (name == "padding" || name == "cropping") numbers({0, 2});
    } else if (absl::EndsWith(kind, "3d") || absl::EndsWith(kind, "3d_transpose")) {
      numbers({3});
      numbers({1, 3, 2});
      if (name == "padding" || name == "cropping") numbers({1, 2, 0, 1, 3, 2});
    } else if (name == "padding") {
      numbers({2});
      numbers({0, 3});
      numbers({1, 2, 3, 4});
    } else {
      numbers({3});
      numbers({3, 2});
      numbers({1, 3});
    }
    return all;
  }
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      for (const bool value : {false, true}) add([&](Message* m) { r->SetBool(m, field, value); });
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      for (const uint64_t value : {uint64_t{7}, uint64_t{1} << 40})
        add([&](Message* m) { r->SetUInt64(m, field, value); });
      break;
    case FieldDescriptor::CPPTYPE_INT32:
      for (const int32_t value : field->name() == "axis" ? std::vector<int32_t>{1, -2} : std::vector<int32_t>{2, 4})
        add([&](Message* m) { r->SetInt32(m, field, value); });
      break;
    case FieldDescriptor::CPPTYPE_STRING:  // an EinsumDense's
      for (const char* value : field->name() == "equation" ? std::vector<const char*>{"abc,bcd->abd", "acb,bd->acd"}
                                                           : std::vector<const char*>{"bd", ""})
        add([&](Message* m) { r->SetString(m, field, value); });
      break;
    case FieldDescriptor::CPPTYPE_FLOAT:
      for (const float value : {0.125f, 0.3f}) add([&](Message* m) { r->SetFloat(m, field, value); });
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      for (int i = 1; i < field->enum_type()->value_count(); ++i) {
        const int number = field->enum_type()->value(i)->number();
        const bool activation = field->enum_type() == v1::Activation_descriptor();
        // That with arguments that have no default.
        if (activation && number == v1::THRESHOLD) continue;
        if (activation && number == v1::GLU && kind != "activation") continue;  // it halves an axis
        const bool recurs =
            kind == "simple_rnn" || kind == "lstm" || kind == "gru" || absl::StartsWith(kind, "conv_lstm");
        if (activation && recurs && !IsElementwise(static_cast<v1::Activation>(number))) continue;
        const bool along = kind == "conv1d" || kind == "depthwise_conv1d" || kind == "separable_conv1d";
        if (field->enum_type() == v1::Padding_descriptor() && number == v1::CAUSAL && !along) continue;
        add([&](Message* m) { r->SetEnumValue(m, field, number); });
      }
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (field->message_type() == v1::Regularizer::descriptor()) {
        for (const char* text : kRegularizerTexts) {
          if (field->name() == "activity_regularizer" && absl::StartsWith(text, "orthogonal")) continue;
          add([&](Message* m) { r->MutableMessage(m, field)->CopyFrom(FromText<v1::Regularizer>(text)); });
        }
        break;
      }
      if (field->message_type() == v1::Constraint::descriptor()) {
        for (const char* text : kConstraintTexts) {
          add([&](Message* m) { r->MutableMessage(m, field)->CopyFrom(FromText<v1::Constraint>(text)); });
        }
        break;
      }
      for (const auto& initializer : Initializers())
        add([&](Message* m) { r->MutableMessage(m, field)->CopyFrom(*initializer); });
      break;
    default: ADD_FAILURE() << field->full_name() << ": a type that this test does not know";
  }
  return all;
}

class KerasRoundTrip : public testing::TestWithParam<std::string> {
 protected:
  // The layer with every default filled in, before and after; nothing where Keras' format cannot hold it.
  void ExpectComesBack(const v1::Model& model, bool* differs_from, const std::string& default_text) {
    const absl::StatusOr<Graph> graph = Graph::Build(model);
    // Initializers and regularizers of matrices, of a variable that is none.
    if (absl::StrContains(graph.status().message(), "as IDENTITY needs") ||
        absl::StrContains(graph.status().message(), "is not a matrix; use l1 or l2") ||
        absl::StrContains(graph.status().message(), "ORTHOGONAL makes matrices")) {
      return;
    }
    ASSERT_TRUE(graph.ok()) << graph.status();
    const std::string before = graph->output().layer.DebugString();
    *differs_from |= before != default_text;
    const absl::StatusOr<std::string> written = KerasModelJson("m", *graph);
    if (absl::StrContains(before, "HARD_SIGMOID_KERAS2")) {  // Keras 3 has no name for it
      EXPECT_EQ(written.status().code(), absl::StatusCode::kUnimplemented);
      return;
    }
    ASSERT_TRUE(written.ok()) << written.status();
    const absl::StatusOr<KerasModel> read = ReadKerasModel(*written);
    ASSERT_TRUE(read.ok()) << read.status();
    const absl::StatusOr<Graph> again = Graph::Build(read->model);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->output().layer.DebugString(), before);
  }
};

TEST_P(KerasRoundTrip, EveryFieldComesBack) {
  const v1::Model base = ModelOf(GetParam());
  bool differs = false;
  ExpectComesBack(base, &differs, "");
  const std::string plain = Graph::Build(base)->output().layer.DebugString();
  v1::Model model = base;
  const Descriptor* descriptor = LayerMessage(&model, GetParam())->GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    // Of one axis the last one alone is taken; what is refused is in graph_layers_test.
    if (field->name() == "axis" && !field->is_repeated()) continue;
    if (field->name() == "value" || field->name() == "attention_axes") continue;
    if (field->name() == "return_cell") continue;  // keras_states_test.cc, keras_conv_lstm_test.cc
    differs = false;
    for (const auto& message : Altered(GetParam(), *LayerMessage(&model, GetParam()), field)) {
      SCOPED_TRACE(message->ShortDebugString());
      v1::Model altered = base;
      LayerMessage(&altered, GetParam())->CopyFrom(*message);
      // Arguments of an activation go with it.
      v1::ActivationLayer* activation =
          altered.layers(1).has_activation() ? altered.mutable_layers(1)->mutable_activation() : nullptr;
      if (activation != nullptr && field->name() == "negative_slope") activation->set_activation(v1::LEAKY_RELU);
      if (activation != nullptr && field->name() == "alpha") activation->set_activation(v1::ELU);
      if (activation != nullptr && field->name() == "axis") activation->set_activation(v1::SOFTMAX);
      if (altered.layers(1).has_resizing() && field->name() == "fill_value")
        altered.mutable_layers(1)->mutable_resizing()->set_pad_to_aspect_ratio(true);
      ExpectComesBack(altered, &differs, plain);
    }
    EXPECT_TRUE(differs) << field->full_name() << ": every value of it was the default";
  }
}

TEST_P(KerasRoundTrip, WhatIsNotTrainedStaysSo) {
  v1::Model model = ModelOf(GetParam());
  model.mutable_layers(1)->set_trainable(false);
  const bool variables = !Graph::Build(model)->variables().empty();
  bool differs = false;
  if (variables) ExpectComesBack(model, &differs, "");
}

TEST_P(KerasRoundTrip, WhatIsCalledAsInInferenceStaysSo) {
  v1::Model model = ModelOf(GetParam());
  const std::string plain = Graph::Build(model)->output().layer.DebugString();
  model.mutable_layers(1)->set_training(false);
  if (GetParam().ends_with("dropout") || GetParam().find("_dropout") != std::string::npos || GetParam() == "dropout" ||
      GetParam() == "gaussian_noise") {  // as one that does nothing
    const std::string written = KerasModelJson("m", Graph::Build(model).value()).value();
    v1::Model again = ReadKerasModel(written)->model;
    const Message& layer = *LayerMessage(&again, GetParam());
    const FieldDescriptor* const share =
        layer.GetDescriptor()->FindFieldByName(GetParam() == "gaussian_noise" ? "stddev" : "rate");
    EXPECT_EQ(layer.GetReflection()->GetFloat(layer, share), 0);
    return;
  }
  bool differs = false;
  ExpectComesBack(model, &differs, plain);
  EXPECT_TRUE(differs);
}

std::vector<std::string> EveryKind() {
  std::vector<std::string> names;
  const google::protobuf::OneofDescriptor* kinds = v1::Layer::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < kinds->field_count(); ++i) {
    // In keras_graphs_test.cc, keras_moves_test.cc, keras_spectral_test.cc, keras_recurrent_test.cc and
    // keras_categories_test.cc. Keras has no external layers.
    const std::string name = kinds->field(i)->name();
    const std::set<std::string> elsewhere = {"input",          "operation",
                                             "reduce",         "slice",
                                             "bidirectional",  "time_distributed",
                                             "discretization", "category_encoding",
                                             "hashing",        "hashed_crossing",
                                             "integer_lookup", "external",
                                             "string_lookup",  "text_vectorization",
                                             "stack",          "pad",
                                             "tile",           "take",
                                             "one_hot",        "einsum",
                                             "top_k",          "spectral_normalization"};
    if (!elsewhere.contains(name)) names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Layers, KerasRoundTrip, testing::ValuesIn(EveryKind()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace cairn
