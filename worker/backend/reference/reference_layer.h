// How the reference computes a kind of layer: a row of its table, in the file of the layer's family. A row gets a Pass:
// one node and the current batch.
//
// Rows are constants; any thread. A pass is used by one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "worker/backend/backend.h"
#include "worker/backend/reference/reference_ops.h"

namespace cairn::reference {

// The numbers of one node for the current batch.
struct Activations {
  std::vector<double> before;  // before the activation, where the layer has one
  std::vector<double> output;
  std::vector<double> gradient;  // with respect to `output`; of the last node, if the loss is fused, to `before`
  // What the layer's backward pass needs of its forward pass.
  std::vector<float> mask;
  std::vector<float> steps;  // for a node that makes a mask: [examples, steps], 1 for each step that counts, else 0
  std::vector<std::vector<double>> kept;
};

class Pass {
 public:
  // values, gradients: the parameter space. dy: with respect to `before`. In the forward pass gradients and dy are
  // empty.
  struct Spaces {
    In values;
    Out gradients;
    In dy;
  };
  // training: null for evaluation, and for a layer that is computed as in inference.
  Pass(const Graph& graph, const Node& node, int64_t examples, const StepInfo* training, const Spaces& spaces,
       std::vector<Activations>* nodes)
      : graph_(graph), node_(node), examples_(examples), training_(training), spaces_(spaces), nodes_(*nodes) {}

  const Graph& graph() const { return graph_; }
  // The same pass for another node with the same id: that of the layer within (common/model/inner_node.h).
  Pass As(const Node& node) const { return Pass(graph_, node, examples_, training_, spaces_, &nodes_); }
  const Node& node() const { return node_; }
  int64_t examples() const { return examples_; }
  const StepInfo* training() const { return training_; }
  size_t inputs() const { return node_.inputs.size(); }
  const Shape& shape(size_t input = 0) const { return graph_.nodes()[node_.inputs[input]].output; }
  Geometry geometry() const { return {examples_, shape(), node_.output, node_.window}; }  // of the first input

  const std::vector<double>& x(size_t input = 0) const { return nodes_[node_.inputs[input]].output; }
  Out dx(size_t input = 0) const { return absl::MakeSpan(nodes_[node_.inputs[input]].gradient); }  // is added to
  Out y() const { return absl::MakeSpan(here().before); }  // zeros before; the layer without its activation
  In dy() const { return spaces_.dy; }
  Activations& here() const { return nodes_[node_.id]; }

  // Which steps of an input count: [examples, steps] of 1 and 0; empty: all of them.
  absl::Span<const float> step_mask(size_t input = 0) const {
    const int maker = graph_.nodes()[node_.inputs[input]].mask;
    return maker < 0 ? absl::Span<const float>() : absl::MakeConstSpan(nodes_[maker].steps);
  }

  // A variable by its index, and its gradient (added to).
  In value(int variable) const { return Of(variable, spaces_.values); }
  Out gradient_of(int variable) const { return Of(variable, spaces_.gradients); }
  // The node's variable called `name`, and its gradient (added to); empty if the node has none.
  In variable(const char* name) const { return Find(name, spaces_.values); }
  Out gradient(const char* name) const { return Find(name, spaces_.gradients); }

 private:
  template <typename Number>
  absl::Span<Number> Of(int variable, absl::Span<Number> space) const {
    const Variable& v = graph_.variables()[variable];
    return space.subspan(v.offset, v.size);
  }
  template <typename Number>
  absl::Span<Number> Find(absl::string_view name, absl::Span<Number> space) const {
    // "/layer" for a layer within the node, else "".
    const absl::string_view within = absl::string_view(node_.name).substr(graph_.nodes()[node_.id].name.size());
    for (int v : node_.variables) {
      const Variable& variable = graph_.variables()[v];
      const std::string& layer = graph_.nodes()[variable.node].name;  // another's where they are shared
      if (variable.name == absl::StrCat(layer, within, "/", name)) {
        return space.subspan(variable.offset, variable.size);
      }
    }
    return {};
  }

  const Graph& graph_;
  const Node& node_;
  const int64_t examples_;
  const StepInfo* const training_;
  const Spaces spaces_;
  std::vector<Activations>& nodes_;
};

struct Layer {
  LayerKind kind;
  // Computes y: the node without its activation. Errors: a batch that the layer cannot take.
  absl::Status (*forward)(const Pass& pass);
  void (*backward)(const Pass& pass);
};

// The families.
absl::Span<const Layer> PlainLayers();
absl::Span<const Layer> DistributedLayers();
absl::Span<const Layer> WindowLayers();
absl::Span<const Layer> FeatureLayers();
absl::Span<const Layer> MergingLayers();
absl::Span<const Layer> RecurrentLayers();
absl::Span<const Layer> TensorLayers();
absl::Span<const Layer> CategoryLayers();

// Null: the reference has no row for the kind.
const Layer* FindLayer(LayerKind kind);

}  // namespace cairn::reference
