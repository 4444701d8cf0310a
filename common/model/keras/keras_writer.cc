#include "common/model/keras/keras_writer.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/decimal.h"
#include "common/model/activation_numbers.h"
#include "common/model/keras/keras_config.h"

namespace cairn {

OrderedJson KerasObject(const char* module, const std::string& class_name, OrderedJson config) {
  OrderedJson object = OrderedJson::object();
  object["module"] = module;
  object["class_name"] = class_name;
  object["config"] = std::move(config);
  object["registered_name"] = nullptr;
  return object;
}

std::string KerasLayerName(std::string name) {
  std::replace(name.begin(), name.end(), '/', '.');
  return name;
}

double KerasWriter::Rounded(float number) { return Decimal(number); }

void KerasWriter::Refuse(const std::string& what) {
  status_.Update(absl::UnimplementedError(absl::StrCat("layer \"", node_.name, "\": ", what)));
}

void KerasWriter::Activation(const char* key, v1::Activation activation) {
  if (activation == v1::GELU_TANH) {  // a name means the other one
    json_[key] = KerasObject("keras.src.ops.nn", "Gelu", {{"approximate", true}});
    return;
  }
  const char* name = KerasActivationName(activation);
  json_[key] = name != nullptr ? name : "";
  // A function written by name has its default arguments.
  const bool plain = node_.kind != LayerKind::kActivation || node_.activation == v1::LEAKY_RELU ||
                     ActivationAlpha(node_) == DefaultAlpha(node_.activation);
  if (name != nullptr && plain) return;
  if (name != nullptr) {
    status_.Update(absl::UnimplementedError(
        absl::StrCat("layer \"", node_.name, "\": Keras' format has no arguments for activation ",
                     v1::Activation_Name(activation), "; leave them out, or export safetensors")));
    return;
  }
  status_.Update(
      absl::UnimplementedError(absl::StrCat("layer \"", node_.name, "\": Keras' format has no name for activation ",
                                            v1::Activation_Name(activation), "; use another, or export safetensors")));
}

void KerasWriter::Initializer(const char* key, const v1::Initializer& initializer) {
  OrderedJson config = OrderedJson::object();
  switch (initializer.kind()) {
    case v1::Initializer::ZEROS:
    case v1::Initializer::ONES: break;
    case v1::Initializer::CONSTANT: config["value"] = Decimal(initializer.value()); break;
    case v1::Initializer::ORTHOGONAL:
      config["seed"] = nullptr;
      config["gain"] = Decimal(initializer.gain());
      break;
    case v1::Initializer::IDENTITY: config["gain"] = Decimal(initializer.gain()); break;
    case v1::Initializer::RANDOM_UNIFORM:
      config["seed"] = nullptr;
      config["minval"] = Decimal(initializer.minval());
      config["maxval"] = Decimal(initializer.maxval());
      break;
    case v1::Initializer::RANDOM_NORMAL:
    case v1::Initializer::TRUNCATED_NORMAL:
      config["seed"] = nullptr;
      config["mean"] = Decimal(initializer.mean());
      config["stddev"] = Decimal(initializer.stddev());
      break;
    case v1::Initializer::VARIANCE_SCALING: {
      const auto lower = [](const std::string& name) { return absl::AsciiStrToLower(name); };
      config["seed"] = nullptr;
      config["scale"] = Decimal(initializer.scale());
      config["mode"] = lower(v1::Initializer::FanMode_Name(initializer.mode()));
      const std::string name = v1::Initializer::Distribution_Name(initializer.distribution());
      config["distribution"] = lower(std::string(absl::StripPrefix(name, "DISTRIBUTION_")));
      break;
    }
    default: config["seed"] = nullptr; break;
  }
  json_[key] = KerasObject("keras.initializers", KerasInitializerClass(initializer.kind()), std::move(config));
}

void KerasWriter::Initializer(const char* key, v1::Initializer::Kind kind) {
  v1::Initializer initializer;
  initializer.set_kind(kind);
  Initializer(key, initializer);
}

void KerasWriter::Regularizer(const char* key, bool given, const v1::Regularizer& regularizer) {
  json_[key] = nullptr;
  if (!given) return;
  OrderedJson config = OrderedJson::object();
  if (regularizer.orthogonal_factor() != 0) {
    config["factor"] = Decimal(regularizer.orthogonal_factor());
    config["mode"] = regularizer.orthogonal_columns() ? "columns" : "rows";
    json_[key] = KerasObject("keras.regularizers", "OrthogonalRegularizer", std::move(config));
    return;
  }
  const bool both = regularizer.l1() != 0 && regularizer.l2() != 0;
  if (regularizer.l1() != 0) config["l1"] = Decimal(regularizer.l1());
  if (regularizer.l2() != 0) config["l2"] = Decimal(regularizer.l2());
  json_[key] = KerasObject("keras.regularizers",
                           both                    ? "L1L2"
                           : regularizer.l1() != 0 ? "L1"
                                                   : "L2",
                           std::move(config));
}

}  // namespace cairn
