// Prints what the backends compute for every model of LayerCases, FrozenCases and InferenceCases, with all that
// somebody else needs to compute the same: one JSON object a line. layers_numpy.py does.
//
//   {"name", "model": [node...], "loss", "examples", "inputs", "labels", "values", "variables", "masks", "offsets",
//    "backends": {name: {"loss", "gradients", "predictions", "evaluated_loss"}}}
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/model/inner_node.h"
#include "common/model/recurrent.h"
#include "google/protobuf/util/json_util.h"
#include "tests/unit/backend/conv_lstm_cases.h"
#include "tests/unit/backend/frozen_cases.h"
#include "tests/unit/backend/recurrent_cases.h"
#include "worker/backend/dropout.h"
#include "worker/backend/noise.h"
#include "worker/backend/onednn/onednn_backend.h"
#include "worker/backend/reference/reference_backend.h"
#include "worker/backend/score_attention.h"

namespace cairn {
namespace {

constexpr int64_t kExamples = 3;
const StepInfo kStep{.seed = 11, .step = 5, .replica = 3};

template <typename Numbers>
std::string List(const Numbers& numbers) {
  return absl::StrCat(
      "[", absl::StrJoin(numbers, ",", [](std::string* out, auto x) { absl::StrAppendFormat(out, "%.9g", x); }), "]");
}

std::string LayerJson(const v1::Layer& layer) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  CAIRN_CHECK(google::protobuf::util::MessageToJsonString(layer, &json, options).ok(), "a layer is printable");
  return json;
}

// What a layer, or the one within it, draws, of attention its scores' dropout; nullopt: nothing.
std::optional<LayerNoise> DrawnBy(const Graph& graph, const Node& node) {
  if (node.kind == LayerKind::kAttention || node.kind == LayerKind::kAdditiveAttention) {
    const ScoreAttention a =
        ScoreAttentionOf(node, graph.nodes()[node.inputs[0]].output, graph.nodes()[node.inputs[1]].output);
    if (a.dropout == 0) return std::nullopt;
    return LayerNoise{NoiseKind::kDropout, a.dropout, a.seed, {a.queries, a.keys}};
  }
  if (node.kind == LayerKind::kTimeDistributed) return NoiseOf(InnerNode(node));
  if (node.kind != LayerKind::kMultiHeadAttention) return NoiseOf(node);
  const v1::MultiHeadAttention& mha = node.layer.multi_head_attention();
  if (mha.dropout() == 0) return std::nullopt;
  const int64_t keys = graph.nodes()[node.inputs.back()].output[0];
  return LayerNoise{NoiseKind::kDropout, mha.dropout(), mha.seed(), {mha.num_heads(), node.output[0], keys}};
}

// Of a recurrent layer's inputs and states, one after the other; empty: it has none.
std::vector<float> RecurrentFactors(const Graph& graph, const Node& node) {
  std::vector<float> factors;
  if (!IsRecurrent(node.kind)) return factors;
  const Shape& input = graph.nodes()[node.inputs[0]].output;
  const int64_t features = NumElements(input) / input[0];
  bool any = false;
  for (const Recurrence& r : RecurrencesOn(input, node.layer)) {
    for (const bool of_state : {false, true}) {
      const float rate = of_state ? r.recurrent_dropout : r.dropout;
      const int64_t begin = RecurrentMaskBegin(r, of_state, kExamples, features);
      const int64_t count = kExamples * (of_state ? r.state_numbers() : features);
      factors.resize(begin + count, 1.0f);
      if (rate > 0) DropoutMask(kStep, node.id, rate).Fill(begin, absl::MakeSpan(factors).subspan(begin, count));
      any |= rate > 0;
    }
  }
  return any ? factors : std::vector<float>();
}

std::string RunJson(Backend& backend, const std::shared_ptr<const Graph>& graph, const ProgramOptions& options,
                    const Batch& batch, const std::vector<float>& values) {
  const auto program = backend.Compile(graph, options);
  CAIRN_CHECK(program.ok(), program.status().ToString());
  std::vector<float> gradients(graph->space_size());
  const auto sums = (*program)->TrainStep(batch, kStep, values, absl::MakeSpan(gradients), nullptr);
  CAIRN_CHECK(sums.ok(), sums.status().ToString());
  const auto predictions = (*program)->Predict(batch, values);
  CAIRN_CHECK(predictions.ok(), predictions.status().ToString());
  const auto evaluated = (*program)->Evaluate(batch, values);
  CAIRN_CHECK(evaluated.ok(), evaluated.status().ToString());
  return absl::StrFormat(R"({"loss":%.17g,"gradients":%s,"predictions":%s,"evaluated_loss":%.17g})", sums->loss,
                         List(gradients), List(predictions->floats()), evaluated->loss);
}

void Print(const LayerCase& c) {
  const std::shared_ptr<const Graph> graph = CaseGraph(c);
  ProgramOptions options;
  options.batch_max = kExamples;
  options.loss = FromText<v1::Loss>(c.loss);
  const Batch batch = CaseBatch(*graph, options.loss, kExamples, 7);
  const std::vector<float> values = CaseValues(*graph, 5);
  std::vector<std::string> nodes, variables, masks, offsets, backends;
  for (const Node& node : graph->nodes()) {
    nodes.push_back(absl::StrFormat(R"({"type":"%s","inputs":[%s],"output":[%s],"shares":%d,"mask":%d,"layer":%s})",
                                    v1::Layer::descriptor()->FindFieldByNumber(node.layer.kind_case())->name(),
                                    absl::StrJoin(node.inputs, ","), absl::StrJoin(node.output, ","), node.shares,
                                    node.mask, LayerJson(node.layer)));
    if (const std::vector<float> mask = RecurrentFactors(*graph, node); !mask.empty()) {
      masks.push_back(absl::StrFormat(R"("%d":%s)", node.id, List(mask)));
    }
    const std::optional<LayerNoise> noise = DrawnBy(*graph, node);
    if (!noise.has_value()) continue;
    std::vector<float> mask(kExamples * NumElements(noise->shape)), drawn(mask.size());
    FillNoise(kStep, node.id, *noise, absl::MakeSpan(mask), absl::MakeSpan(drawn));
    masks.push_back(absl::StrFormat(R"("%d":%s)", node.id, List(mask)));
    if (HasOffsets(noise->kind)) offsets.push_back(absl::StrFormat(R"("%d":%s)", node.id, List(drawn)));
  }
  for (const Variable& v : graph->variables()) {
    variables.push_back(absl::StrFormat(R"({"name":"%s","shape":[%s],"offset":%d,"node":%d,"trainable":%s})", v.name,
                                        absl::StrJoin(v.shape, ","), v.offset, v.node,
                                        v.kind == VariableKind::kTrainable ? "true" : "false"));
  }
  for (const auto& backend : {MakeReferenceBackend(), MakeOnednnBackend()}) {
    backends.push_back(
        absl::StrFormat(R"("%s":%s)", backend->name(), RunJson(*backend, graph, options, batch, values)));
  }
  const std::string line = absl::StrCat(
      R"({"name":")", c.name, R"(","model":[)", absl::StrJoin(nodes, ","), R"(],"loss":")",
      v1::Loss::Kind_Name(options.loss.kind()), R"(","from_logits":)", options.loss.from_logits() ? "true" : "false",
      R"(,"examples":)", kExamples, R"(,"inputs":)", List(batch.inputs.floats()), R"(,"labels":)",
      List(batch.labels.floats()), R"(,"values":)", List(values), R"(,"variables":[)", absl::StrJoin(variables, ","),
      R"(],"masks":{)", absl::StrJoin(masks, ","), R"(},"offsets":{)", absl::StrJoin(offsets, ","), R"(},"backends":{)",
      absl::StrJoin(backends, ","), "}}\n");
  std::fwrite(line.data(), 1, line.size(), stdout);
}

}  // namespace
}  // namespace cairn

int main() {
  for (const cairn::LayerCase& c : cairn::LayerCases()) cairn::Print(c);
  for (const cairn::LayerCase& c : cairn::RecurrentCases()) cairn::Print(c);
  for (const cairn::LayerCase& c : cairn::MaskCases()) cairn::Print(c);
  for (const cairn::LayerCase& c : cairn::ConvLstmCases()) cairn::Print(c);
  for (const cairn::LayerCase& c : cairn::ConvLstmMaskCases()) cairn::Print(c);
  for (const cairn::LayerCase& c : cairn::DistributedCases()) cairn::Print(c);
  for (const cairn::LayerCase& c : cairn::FrozenCases()) cairn::Print(c);
  for (const cairn::LayerCase& c : cairn::InferenceCases()) cairn::Print(c);
  for (const cairn::LayerCase& c : cairn::HashingCases()) cairn::Print(c);
}
