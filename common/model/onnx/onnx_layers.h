// OnnxLayers: the model under construction during an import: its layers with their shapes and variables. It also places
// values of the graph, which are views of layers' outputs (onnx_view.h): transpositions and reshapes become layers only
// if they must.
//
// One thread. Invariant: shapes_[i] is the output shape of layer i; variables_ are those of the layers.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/model.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/model/onnx/onnx_variable.h"
#include "common/model/onnx/onnx_view.h"

namespace cairn {

class OnnxLayers {
 public:
  // Sets the name of layers that are added without one: that of the current operator.
  void SetName(const std::string& name);
  // Adds a layer and infers its shape. Variables' names do not include the layer's name. name: that of the file; "":
  // the name given to SetName. Errors: INVALID_ARGUMENT, the layer does not fit its inputs; UNIMPLEMENTED, too many
  // layers.
  absl::StatusOr<int> Add(LayerKind kind, v1::Layer layer, const std::vector<int>& inputs,
                          std::vector<OnnxVariable> variables = {}, const std::string& name = "");
  // Changes the layer's output to output * scale + offset (along its last axis) by changing its variables or fields.
  // Returns false if the layer has none that can represent this.
  bool FoldInto(int id, absl::Span<const float> scale, absl::Span<const float> offset);
  // The names of the layers whose outputs are the model's; default: the last one.
  void SetOutputs(const std::vector<std::string>& names) {
    model_.mutable_outputs()->Assign(names.begin(), names.end());
  }
  ImportedOnnx Take();

  // ---- values ----
  // Returns a layer whose output has the view's numbers in the view's order.
  absl::StatusOr<int> Place(const OnnxView& view);
  // The same with the view's axes permuted to `order`.
  absl::StatusOr<int> PlaceInOrder(const OnnxView& view, const std::vector<int>& order);
  // Makes [channels, height, width] or [channels, steps] channels-last.
  absl::StatusOr<int> PlaceChannelsLast(const OnnxView& view);
  // Returns the value as one row of numbers, in the order of a layer's output. `order` is set to the position of each
  // number in the value.
  absl::StatusOr<int> PlaceRow(const OnnxView& x, std::vector<int64_t>* order);
  absl::StatusOr<OnnxView> TransposedView(const OnnxView& view, const std::vector<int>& order);

  // ---- accessors ----
  int count() const { return model_.layers_size(); }
  const v1::Layer& at(int layer) const { return model_.layers(layer); }
  LayerKind KindOf(int layer) const { return kinds_[static_cast<size_t>(layer)]; }
  const Shape& ShapeOf(int layer) const { return shapes_[static_cast<size_t>(layer)]; }

 private:
  std::string UniqueName(LayerKind kind, std::string name) const;

  v1::Model model_;
  std::vector<LayerKind> kinds_;  // by layer
  std::vector<Shape> shapes_;     // by layer
  std::vector<OnnxVariable> variables_;
  std::set<std::string> names_;
  std::string name_;                   // for layers without a name
  std::map<std::string, int> placed_;  // by the key of Place
};

}  // namespace cairn
