#include "common/model/job_outputs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/model/activity.h"
#include "common/model/external_check.h"
#include "common/model/metric_sums.h"
#include "common/model/target_check.h"

namespace cairn {
namespace {

// The field of the layer's kind that holds its activation; null if there is none.
const google::protobuf::FieldDescriptor* ActivationField(const google::protobuf::Message& kind) {
  const google::protobuf::FieldDescriptor* const field = kind.GetDescriptor()->FindFieldByName("activation");
  const bool fits = field != nullptr && field->enum_type() == v1::Activation_descriptor() && !field->is_repeated();
  return fits ? field : nullptr;
}

google::protobuf::Message* KindOf(v1::Layer* layer) {
  const google::protobuf::Reflection& reflection = *layer->GetReflection();
  const google::protobuf::FieldDescriptor* const set =
      reflection.GetOneofFieldDescriptor(*layer, layer->GetDescriptor()->FindOneofByName("kind"));
  return set == nullptr ? nullptr : reflection.MutableMessage(layer, set);
}

// The activation that the joined output omits: a softmax or sigmoid whose cross-entropy is computed from the logits,
// which is exact for any number. Only for a layer whose output has no other
// consumer, whose variables no other layer shares, and which has no activity penalty, since that is of the values after
// the activation.
v1::Activation LeftOut(const Graph& graph, const Node& node, const v1::Loss& loss) {
  const v1::Loss::Kind kind = loss.kind();
  const bool categorical =
      kind == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY || kind == v1::Loss::CATEGORICAL_CROSSENTROPY;
  const v1::Activation wanted = categorical                             ? v1::SOFTMAX
                                : kind == v1::Loss::BINARY_CROSSENTROPY ? v1::SIGMOID
                                                                        : v1::LINEAR;
  if (loss.from_logits() || wanted == v1::LINEAR || node.activation != wanted || node.shares >= 0) return v1::LINEAR;
  if (!ActivityRegularizerOf(node).none()) return v1::LINEAR;
  for (const Node& other : graph.nodes()) {
    if (other.shares == node.id) return v1::LINEAR;
    if (std::find(other.inputs.begin(), other.inputs.end(), node.id) != other.inputs.end()) return v1::LINEAR;
  }
  v1::Layer layer = node.layer;
  google::protobuf::Message* const fields = KindOf(&layer);
  const bool whole = !layer.has_activation() || layer.activation().axis().empty();
  return whole && fields != nullptr && ActivationField(*fields) != nullptr ? wanted : v1::LINEAR;
}

// A name that no layer of the model has yet.
std::string FreeName(const v1::Model& model, std::string name) {
  const auto taken = [&] {
    return std::any_of(model.layers().begin(), model.layers().end(),
                       [&](const v1::Layer& layer) { return layer.name() == name; });
  };
  while (taken()) name += "_";
  return name;
}

}  // namespace

std::vector<JoinedOutput> JoinedOutputsOf(const Graph& graph, const v1::JobSpec& spec) {
  std::vector<JoinedOutput> outputs;
  int64_t begin = 0, label = 0;
  for (const int id : graph.outputs()) {
    const Node& node = graph.nodes()[static_cast<size_t>(id)];
    JoinedOutput output;
    output.name = node.name;
    output.node = id;
    output.shape = node.output;
    output.begin = begin;
    output.size = NumElements(node.output);
    begin += output.size;
    const auto with = std::find_if(spec.outputs().begin(), spec.outputs().end(),
                                   [&](const v1::OutputLoss& one) { return one.output() == node.name; });
    if (with != spec.outputs().end()) {
      output.trained = true;
      output.with = *with;
      output.label_begin = label;
      output.label_size = NumElements(TargetShape(with->loss(), node.output));
      const google::protobuf::RepeatedPtrField<v1::TargetSource>& targets = spec.data().targets();
      for (const v1::TargetSource& target : targets) {
        if (target.output() != node.name) continue;
        output.label_size = NumElements(WantedTarget(with->loss(), node.output, target));
      }
      const bool of_label = std::none_of(targets.begin(), targets.end(), [&](const v1::TargetSource& target) {
        return target.output() == node.name && !IsLabel(target);
      });
      if (of_label) output.label_size = 1;
      label += output.label_size;
      output.left_out = LeftOut(graph, node, with->loss());
    }
    outputs.push_back(std::move(output));
  }
  return outputs;
}

absl::StatusOr<Graph> BuildJoined(const v1::Model& model, const std::vector<JoinedOutput>& outputs) {
  v1::Model joined = model;
  std::vector<std::string> parts;
  for (const JoinedOutput& output : outputs) {
    if (output.left_out != v1::LINEAR) {
      google::protobuf::Message* const kind = KindOf(joined.mutable_layers(output.node));
      kind->GetReflection()->SetEnumValue(kind, ActivationField(*kind), v1::LINEAR);
    }
    if (output.shape.size() == 1) {
      parts.push_back(output.name);
      continue;
    }
    v1::Layer& flat = *joined.add_layers();
    flat.set_name(FreeName(model, absl::StrCat("flat ", parts.size())));
    flat.add_inputs(output.name);
    flat.mutable_flatten();
    parts.push_back(flat.name());
  }
  v1::Layer& all = *joined.add_layers();
  all.set_name(FreeName(model, "all outputs"));
  for (const std::string& part : parts) all.add_inputs(part);
  all.mutable_concatenate();
  joined.clear_outputs();
  return Graph::Build(joined);
}

absl::Status CheckJoined(const Graph& graph, const v1::JobSpec& spec) {
  return Annotate(BuildJoined(spec.model(), JoinedOutputsOf(graph, spec)).status(),
                  "outputs: the model as it is trained, with a flatten layer for each output of several axes and one "
                  "that concatenates all");
}

std::vector<v1::Metric> FiguresOfJob(const v1::JobSpec& spec) {
  if (const v1::External* const external = ExternalOf(spec)) {
    std::vector<v1::Metric> figures;
    for (const std::string& name : external->figures()) figures.emplace_back().set_name(name);
    return figures;
  }
  if (!TrainsOutputs(spec)) return {spec.metrics().begin(), spec.metrics().end()};
  std::vector<v1::Metric> figures;
  for (const v1::OutputLoss& output : spec.outputs()) {
    figures.emplace_back().set_name(absl::StrCat(output.output(), "_loss"));
  }
  for (const v1::OutputLoss& output : spec.outputs()) {
    for (const v1::Metric& metric : output.metrics()) {
      figures.push_back(metric);
      figures.back().set_name(absl::StrCat(output.output(), "_", MetricNameOf(metric)));
    }
  }
  return figures;
}

int FigureCount(const v1::JobSpec& spec) {
  if (const v1::External* const external = ExternalOf(spec)) return external->figures_size();
  int count = TrainsOutputs(spec) ? spec.outputs_size() : spec.metrics_size();
  for (const v1::OutputLoss& output : spec.outputs()) count += output.metrics_size();
  return count;
}

}  // namespace cairn
