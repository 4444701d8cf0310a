#include "replay/layer_outputs.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tensor/finite.h"

namespace cairn {
namespace {

// The values of the variables of `part`, each layer's from the layer of its name in `whole`, which may share them.
absl::StatusOr<Buffer> ValuesOf(const Graph& part, const Graph& whole, absl::Span<const float> values) {
  std::map<std::string, const Node*> by_name;
  for (const Node& node : whole.nodes()) by_name[node.name] = &node;
  Buffer out = Buffer::Zeros(static_cast<size_t>(part.space_size()) * sizeof(float));
  for (const Node& node : part.nodes()) {
    const auto from = by_name.find(node.name);
    if (from == by_name.end() || from->second->variables.size() != node.variables.size())
      return absl::InternalError(absl::StrCat("layer \"", node.name, "\" has other variables"));
    for (size_t i = 0; i < node.variables.size(); ++i) {
      const Variable& to = part.variables()[static_cast<size_t>(node.variables[i])];
      const Variable& theirs = whole.variables()[static_cast<size_t>(from->second->variables[i])];
      if (to.size != theirs.size) return absl::InternalError(absl::StrCat(to.name, " has another size"));
      std::copy_n(values.begin() + theirs.offset, to.size, out.mutable_floats().begin() + to.offset);
    }
  }
  return out;
}

// The inputs of `part` among those of `whole`.
Batch InputsOf(const Graph& part, const Graph& whole, const Batch& batch) {
  const auto element = static_cast<size_t>(SizeOf(batch.element));
  const size_t stride = batch.inputs.size() / static_cast<size_t>(batch.examples);
  std::vector<std::pair<size_t, size_t>> ranges;  // of an example: first byte, bytes
  size_t size = 0;
  for (const int id : part.inputs()) {
    const Node& wanted = part.nodes()[static_cast<size_t>(id)];
    for (const int other : whole.inputs()) {
      const Node& node = whole.nodes()[static_cast<size_t>(other)];
      if (node.name != wanted.name) continue;
      ranges.emplace_back(static_cast<size_t>(node.input_offset) * element,
                          static_cast<size_t>(NumElements(node.output)) * element);
      size += ranges.back().second;
    }
  }
  Batch out = batch;
  out.inputs = Buffer::Allocate(size * static_cast<size_t>(batch.examples));
  uint8_t* to = out.inputs.mutable_data();
  for (int64_t i = 0; i < batch.examples; ++i) {
    for (const auto& [first, bytes] : ranges) {
      std::memcpy(to, batch.inputs.data() + static_cast<size_t>(i) * stride + first, bytes);
      to += bytes;
    }
  }
  return out;
}

absl::StatusOr<Buffer> OutputOf(Backend& backend, const JobModel& model, int node, const Batch& examples,
                                absl::Span<const float> values) {
  const Graph& whole = *model.graph;
  CAIRN_ASSIGN_OR_RETURN(Graph built, Graph::Build(ModelUpTo(whole, node)));
  const auto part = std::make_shared<const Graph>(std::move(built));
  ProgramOptions options = model.options;
  options.batch_max = std::max(options.batch_max, examples.examples);
  options.loss = v1::Loss();
  options.loss.set_kind(v1::Loss::MEAN_SQUARED_ERROR);  // it is not computed, and fits every output
  options.metrics.clear();
  options.class_weights.clear();
  options.outputs.clear();
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program, backend.Compile(part, options));
  CAIRN_ASSIGN_OR_RETURN(const Buffer weights, ValuesOf(*part, whole, values));
  return program->Predict(InputsOf(*part, whole, examples), weights.floats());
}

}  // namespace

v1::Model ModelUpTo(const Graph& graph, int node) {
  std::vector<char> needed(graph.nodes().size(), 0);
  needed[static_cast<size_t>(node)] = 1;
  for (int id = node; id >= 0; --id) {
    if (!needed[static_cast<size_t>(id)]) continue;
    for (const int input : graph.nodes()[static_cast<size_t>(id)].inputs) needed[static_cast<size_t>(input)] = 1;
  }
  v1::Model model;
  for (int id = 0; id <= node; ++id) {
    if (!needed[static_cast<size_t>(id)]) continue;
    const Node& from = graph.nodes()[static_cast<size_t>(id)];
    v1::Layer& layer = *model.add_layers();
    layer = from.layer;
    layer.set_name(from.name);
    layer.clear_submodel();
    layer.clear_shares();  // it has the other fields of the layer whose variables it shares
    if (layer.inputs().empty() && !from.inputs.empty())
      layer.add_inputs(graph.nodes()[static_cast<size_t>(from.inputs.front())].name);
  }
  return model;
}

OutputSearch FindNotFiniteOutput(Backend& backend, const JobModel& model, const Batch& examples,
                                 absl::Span<const float> values) {
  OutputSearch search;
  const Graph& graph = *model.graph;
  for (const Node& node : graph.nodes()) {
    if (node.kind == LayerKind::kInput) continue;
    const absl::StatusOr<Buffer> output = OutputOf(backend, model, node.id, examples, values);
    if (!output.ok()) {
      search.passed_over.push_back(absl::StrCat(node.name, " (", output.status().message(), ")"));
    } else if (!AllFinite(output->floats())) {
      search.layer = node.name;
      break;
    }
  }
  return search;
}

}  // namespace cairn
