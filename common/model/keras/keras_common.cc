#include "common/model/keras/keras_common.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr char kActivityRegularizer[] = "activity_regularizer";

struct NamedConstraint {
  const char* name;
  v1::Constraint::Kind kind;
};
constexpr NamedConstraint kConstraints[] = {{"MaxNorm", v1::Constraint::MAX_NORM},
                                            {"NonNeg", v1::Constraint::NON_NEG},
                                            {"UnitNorm", v1::Constraint::UNIT_NORM},
                                            {"MinMaxNorm", v1::Constraint::MIN_MAX_NORM},
                                            {"RadialConstraint", v1::Constraint::RADIAL}};

// Makes "max_norm" and "MaxNorm" equal.
std::string Plain(absl::string_view name) {
  std::string plain = absl::AsciiStrToLower(name);
  plain.erase(std::remove(plain.begin(), plain.end(), '_'), plain.end());
  return plain;
}

bool ReadAxis(const Json& value, v1::Constraint* out) {
  for (const Json& axis : value.is_array() ? value : Json::array({value})) {
    if (!axis.is_number_integer() || std::abs(axis.get<double>()) > 8 || out->axis_size() == 8) return false;
    out->add_axis(axis.get<int32_t>());
  }
  return true;
}

// Returns false if Cairn does not have it.
bool ReadConstraint(const Json& value, v1::Constraint* out) {
  const bool object = value.is_object() && value.contains("class_name") && value["class_name"].is_string();
  if (!object && !value.is_string()) return false;
  const std::string name = object ? value["class_name"].get<std::string>() : value.get<std::string>();
  for (const NamedConstraint& known : kConstraints) {
    if (Plain(known.name) == Plain(name)) out->set_kind(known.kind);
  }
  if (out->kind() == v1::Constraint::CONSTRAINT_UNSPECIFIED) return false;
  const Json config = object && value.contains("config") ? value["config"] : Json::object();
  if (!config.is_object()) return false;
  for (const auto& [key, argument] : config.items()) {
    if (key == "axis" && !argument.is_null()) {
      if (!ReadAxis(argument, out)) return false;
      continue;
    }
    if (!argument.is_number()) return false;
    const auto number = static_cast<float>(argument.get<double>());
    if (!std::isfinite(number)) return false;
    if (key == "max_value") {
      out->set_max_value(number);
    } else if (key == "min_value") {
      out->set_min_value(number);
    } else if (key == "rate") {
      out->set_rate(number);
    } else {
      return false;
    }
  }
  return true;
}

// "MaxNorm(axis=[0], max_value=-1)".
std::string ShownConstraint(const Json& value) {
  const bool argued = value.is_object() && value.contains("config") && value["config"].is_object();
  const Json config = argued ? value["config"] : Json::object();
  std::string arguments;
  for (const auto& [key, argument] : config.items()) {
    absl::StrAppend(&arguments, arguments.empty() ? "" : ", ", ShownText(key), "=", ShownJson(argument));
  }
  return arguments.empty() ? ShownJson(value) : absl::StrCat(ShownJson(value), "(", arguments, ")");
}

bool HasEmptyAxis(const Json& value) {
  if (!value.is_object() || !value.contains("config") || !value["config"].is_object()) return false;
  const Json& config = value["config"];
  return config.contains("axis") && config["axis"].is_array() && config["axis"].empty();
}

bool IsFalse(const Message& fields, const char* name) {
  const FieldDescriptor* const field = fields.GetDescriptor()->FindFieldByName(name);
  return field != nullptr && fields.GetReflection()->HasField(fields, field) &&
         !fields.GetReflection()->GetBool(fields, field);
}

bool IsEmptyText(const Message& fields, const char* name) {
  const FieldDescriptor* const field = fields.GetDescriptor()->FindFieldByName(name);
  return field != nullptr && fields.GetReflection()->GetString(fields, field).empty();
}

bool LacksVariable(const Message& fields, absl::string_view key) {
  if (key == "bias_constraint") return IsFalse(fields, "use_bias") || IsEmptyText(fields, "bias_axes");
  if (key == "beta_constraint") return IsFalse(fields, "center");
  return key == "gamma_constraint" && IsFalse(fields, "scale");
}

const FieldDescriptor* KindOf(const v1::Layer& layer) {
  return layer.GetReflection()->GetOneofFieldDescriptor(layer, v1::Layer::descriptor()->FindOneofByName("kind"));
}

bool IsConstraint(const FieldDescriptor* field) {
  return !field->is_repeated() && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         field->message_type() == v1::Constraint::descriptor();
}

void ReadActivityRegularizer(KerasConfig& config, Message* fields) {
  const FieldDescriptor* const field = fields->GetDescriptor()->FindFieldByName(kActivityRegularizer);
  if (field == nullptr) return;
  v1::Regularizer regularizer;
  config.Regularizer(kActivityRegularizer, &regularizer);
  if (regularizer.orthogonal_factor() != 0) {
    return config.Refuse("activity_regularizer: OrthogonalRegularizer is for kernels; use L1 or L2 there");
  }
  if (regularizer.l1() == 0 && regularizer.l2() == 0) return;
  fields->GetReflection()->MutableMessage(fields, field)->CopyFrom(regularizer);
}

}  // namespace

void ReadKerasCommon(KerasConfig& config, v1::Layer* layer) {
  const FieldDescriptor* const kind = KindOf(*layer);
  if (kind == nullptr) return;
  Message* const fields = layer->GetReflection()->MutableMessage(layer, kind);
  ReadActivityRegularizer(config, fields);
  for (int i = 0; i < fields->GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const field = fields->GetDescriptor()->field(i);
    if (!IsConstraint(field)) continue;
    const Json* const value = config.Take(field->name().c_str());
    if (value == nullptr || LacksVariable(*fields, field->name())) continue;
    if (HasEmptyAxis(*value)) {
      return config.Refuse(absl::StrCat(field->name(), ": ", ShownConstraint(*value),
                                        " has a norm along no axis; name one in axis, such as 0, or leave axis out"));
    }
    v1::Constraint constraint;
    if (!ReadConstraint(*value, &constraint)) {
      return config.Refuse(absl::StrCat(field->name(), ": ", ShownConstraint(*value),
                                        " is not supported; use MaxNorm, NonNeg, UnitNorm, MinMaxNorm or "
                                        "RadialConstraint with numbers and axes, or leave it "
                                        "out"));
    }
    fields->GetReflection()->MutableMessage(fields, field)->CopyFrom(constraint);
  }
}

void WriteKerasCommon(const v1::Layer& layer, KerasWriter& writer) {
  const FieldDescriptor* const kind = KindOf(layer);
  if (kind == nullptr) return;
  const Message& fields = layer.GetReflection()->GetMessage(layer, kind);
  if (const FieldDescriptor* const field = fields.GetDescriptor()->FindFieldByName(kActivityRegularizer);
      field != nullptr && fields.GetReflection()->HasField(fields, field)) {
    writer.Regularizer(kActivityRegularizer, true,
                       static_cast<const v1::Regularizer&>(fields.GetReflection()->GetMessage(fields, field)));
  }
  for (int i = 0; i < fields.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const field = fields.GetDescriptor()->field(i);
    if (!IsConstraint(field) || !fields.GetReflection()->HasField(fields, field)) continue;
    const auto& c = static_cast<const v1::Constraint&>(fields.GetReflection()->GetMessage(fields, field));
    if (c.kind() == v1::Constraint::RADIAL) continue;  // Keras 3 has it no more
    OrderedJson json = OrderedJson::object();
    if (c.has_min_value()) json["min_value"] = KerasWriter::Rounded(c.min_value());
    if (c.has_max_value()) json["max_value"] = KerasWriter::Rounded(c.max_value());
    if (c.has_rate()) json["rate"] = KerasWriter::Rounded(c.rate());
    if (c.axis_size() == 1) json["axis"] = c.axis(0);
    if (c.axis_size() > 1) json["axis"] = std::vector<int32_t>(c.axis().begin(), c.axis().end());
    for (const NamedConstraint& known : kConstraints) {
      if (known.kind == c.kind()) {
        writer[field->name().c_str()] = KerasObject("keras.constraints", known.name, std::move(json));
        break;
      }
    }
  }
}

}  // namespace cairn
