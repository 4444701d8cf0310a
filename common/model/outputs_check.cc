#include "common/model/outputs_check.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/bad.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/model/data_check.h"
#include "common/model/job_outputs.h"
#include "common/model/limits.h"
#include "common/model/loss_check.h"
#include "common/model/metric_sums.h"
#include "common/model/nearest.h"
#include "common/model/target_check.h"
#include "common/tensor/limits.h"

namespace cairn {
namespace {

std::vector<std::string> NamesOf(const Graph& graph) {
  std::vector<std::string> names;
  for (const int id : graph.outputs()) names.push_back(graph.nodes()[static_cast<size_t>(id)].name);
  return names;
}

absl::Status CheckName(const std::vector<std::string>& names, int place, const std::string& output) {
  const std::string where = absl::StrCat("outputs[", place, "].output");
  if (output.empty()) return Bad(where, ": missing; name one of the model's outputs, \"", names[0], "\" say");
  if (std::find(names.begin(), names.end(), output) == names.end()) {
    const std::string shown = output.substr(0, kLayerNameBytesMax), nearest = Nearest(shown, names);
    return Bad(where, ": \"", shown, "\" is not an output of the model; ",
               nearest.empty() ? absl::StrCat("its outputs are ", absl::StrJoin(names, ", "))
                               : absl::StrCat("did you mean \"", nearest, "\"?"));
  }
  if (!absl::StartsWith(output, "val_")) return absl::OkStatus();
  return Bad(where, ": \"", output, "\" begins with val_, as the figures of the validation split do; rename the layer");
}

absl::Status CheckOne(const Graph& graph, int place, v1::OutputLoss* output, std::vector<std::string>* warnings) {
  const std::string where = absl::StrCat("outputs[", place, "].");
  const Node& node = OutputNode(graph, output->output());
  if (!output->has_loss()) {
    return Bad(where, "loss: missing; give output \"", node.name, "\" a loss, or leave it out of outputs");
  }
  if (node.mask >= 0) {
    return Bad(where, "output: \"", node.name, "\" gives a number for every step, and \"",
               graph.nodes()[static_cast<size_t>(node.mask)].name,
               "\" masks steps of it; among several outputs a loss ",
               "that leaves masked steps out is not supported: set return_sequences: false in the last recurrent ",
               "layer before it, or remove the mask");
  }
  if (!output->has_weight()) output->set_weight(1);
  if (!(output->weight() >= 0) || !std::isfinite(output->weight())) {
    return Bad(where, "weight: ", output->weight(), " is negative or not finite; use a number such as 0.5");
  }
  if (const absl::Status loss = CheckLossOf(output->mutable_loss(), node); !loss.ok()) {
    return Bad(where, loss.message());
  }
  std::vector<std::string> own;
  WarnOfLossOf(output->loss(), node, absl::StrCat("layer \"", node.name, "\""), &own);
  for (const std::string& warning : own) warnings->push_back(where + warning);
  absl::Status metrics = CheckMetricsBeside(output->loss().kind(), output->metrics_size());
  if (metrics.ok()) metrics = CheckMetricsOf(output->mutable_metrics(), node);
  if (!metrics.ok()) {
    return Bad(where, metrics.message());
  }
  return absl::OkStatus();
}

// Rejects fields that belong to jobs with a single output.
absl::Status CheckNoOthers(const v1::JobSpec& spec, const Graph& graph) {
  if (graph.outputs().size() == 1) {
    return Bad("outputs: the model has one output, \"", graph.output().name, "\"; use `loss` and `metrics` instead");
  }
  if (spec.has_loss()) return Bad("loss: together with outputs, each of which has a loss of its own; leave loss out");
  if (spec.metrics_size() > 0) {
    return Bad("metrics: together with outputs; move each to the entry of its output, as outputs { metrics {...} }");
  }
  if (spec.class_weight_size() > 0) {
    return Bad("class_weight: a job that trains several outputs has none, as in Keras; leave it out, or weigh the ",
               "examples by data.weight_column");
  }
  return absl::OkStatus();
}

absl::Status CheckFigures(const v1::JobSpec& spec) {
  if (FigureCount(spec) > kMetricsMax) {
    return Bad("outputs: ", FigureCount(spec), " losses and metrics; at most ", kMetricsMax, " are allowed");
  }
  if (MetricSumCount(spec) > kMetricSumsMax) {
    return Bad("outputs: their losses and metrics are made of ", MetricSumCount(spec), " sums, and at most ",
               kMetricSumsMax, " go with an update; leave some out, or lower num_thresholds of AUC and its kin");
  }
  std::set<std::string> names;
  for (const v1::Metric& figure : FiguresOfJob(spec)) {
    if (names.insert(figure.name()).second) continue;
    return Bad("outputs: two figures are called \"", figure.name(), "\"; give a metric another name");
  }
  return absl::OkStatus();
}

// Whether the loss accepts the single number of a label.
absl::Status CheckLabelFits(const std::string& where, const v1::OutputLoss& output, const Node& node) {
  const int64_t wanted = NumElements(TargetShape(output.loss(), node.output));
  if (wanted == 1 || (IsCategorical(output.loss().kind()) && node.output.size() == 1)) return absl::OkStatus();
  return Bad(where, ": the data's label is one number, but layer \"", node.name, "\" gives ", ToString(node.output),
             " and the loss takes ", wanted, " numbers; name columns, a feature, pictures or input_itself");
}

absl::Status CheckTargetNames(const v1::JobSpec& spec) {
  std::set<std::string> seen;
  for (int i = 0; i < spec.data().targets_size(); ++i) {
    const std::string where = absl::StrCat("data.targets[", i, "].output"), name = spec.data().targets(i).output();
    if (name.empty()) return Bad(where, ": missing, and the job trains several outputs; name one of them");
    const bool known = std::any_of(spec.outputs().begin(), spec.outputs().end(),
                                   [&](const v1::OutputLoss& output) { return output.output() == name; });
    if (!known) {
      return Bad(where, ": \"", name.substr(0, kLayerNameBytesMax), "\" has no loss in outputs; give it one, or leave ",
                 "the target out");
    }
    if (!seen.insert(name).second) return Bad(where, ": \"", name, "\" twice; leave one of them out");
  }
  return absl::OkStatus();
}

}  // namespace

const Node& OutputNode(const Graph& graph, const std::string& name) {
  const auto found = std::find_if(graph.outputs().begin(), graph.outputs().end(),
                                  [&](int id) { return graph.nodes()[static_cast<size_t>(id)].name == name; });
  CAIRN_CHECK(found != graph.outputs().end(), "an output of a checked job");
  return graph.nodes()[static_cast<size_t>(*found)];
}

absl::Status CheckOutputLosses(v1::JobSpec* spec, const Graph& graph, std::vector<std::string>* warnings) {
  CAIRN_RETURN_IF_ERROR(CheckNoOthers(*spec, graph));
  const std::vector<std::string> names = NamesOf(graph);
  std::set<std::string> seen;
  for (int i = 0; i < spec->outputs_size(); ++i) {
    const std::string& name = spec->outputs(i).output();
    CAIRN_RETURN_IF_ERROR(CheckName(names, i, name));
    if (!seen.insert(name).second) return Bad("outputs[", i, "].output: \"", name, "\" twice; leave one of them out");
    CAIRN_RETURN_IF_ERROR(CheckOne(graph, i, spec->mutable_outputs(i), warnings));
  }
  google::protobuf::RepeatedPtrField<v1::OutputLoss> ordered;
  for (const std::string& name : names) {
    for (const v1::OutputLoss& output : spec->outputs()) {
      if (output.output() == name) *ordered.Add() = output;
    }
  }
  *spec->mutable_outputs() = std::move(ordered);
  return CheckFigures(*spec);
}

absl::Status CheckTargetsOfOutputs(v1::JobSpec* spec, const Graph& graph) {
  v1::Data& data = *spec->mutable_data();
  CAIRN_RETURN_IF_ERROR(CheckWeightColumn(data));
  CAIRN_RETURN_IF_ERROR(CheckTargetNames(*spec));
  if (data.targets().empty()) {
    for (const v1::OutputLoss& output : spec->outputs()) data.add_targets()->set_output(output.output());
  }
  google::protobuf::RepeatedPtrField<v1::TargetSource> ordered;
  for (const v1::OutputLoss& output : spec->outputs()) {
    int found = 0;
    while (found < data.targets_size() && data.targets(found).output() != output.output()) ++found;
    if (found == data.targets_size()) {
      return Bad("data.targets: there is no entry for output \"", output.output(),
                 "\", which has a loss; add targets { ", "output: \"", output.output(),
                 "\" columns: ... }, or without columns for the data's label");
    }
    const std::string where = absl::StrCat("data.targets[", found, "]");
    v1::TargetSource target = data.targets(found);
    const Node& node = OutputNode(graph, output.output());
    if (IsLabel(target)) {
      CAIRN_RETURN_IF_ERROR(CheckLabelFits(where, output, node));
      if (target.shape_size() > 1 || (target.shape_size() == 1 && target.shape(0) != 1)) {
        return Bad(where, ".shape: the data's label is one number; leave shape out");
      }
      if (target.shape().empty()) target.add_shape(1);
    } else {
      CAIRN_RETURN_IF_ERROR(
          CheckTargetOf(where, data, WantedTarget(output.loss(), node.output, target), graph, node, &target));
    }
    *ordered.Add() = std::move(target);
  }
  *data.mutable_targets() = std::move(ordered);
  const auto several = [&](auto is) { return std::count_if(data.targets().begin(), data.targets().end(), is) > 1; };
  if (several([](const v1::TargetSource& target) { return target.input_itself(); })) {
    return Bad("data.targets: input_itself of two outputs; leave one of them");
  }
  if (several([](const v1::TargetSource& target) { return !target.pictures().empty(); })) {
    return Bad("data.targets: pictures of two outputs; leave one of them");
  }
  if (TakesLabel(data) && data.label_column().empty()) data.set_label_column("-1");
  return absl::OkStatus();
}

}  // namespace cairn
