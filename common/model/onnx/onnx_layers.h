// OnnxLayers: the model that an ONNX graph becomes, so far: its layers with their shapes and variables. Places values
// of the graph, which are views of layers' outputs (onnx_view.h): transpositions and reshapes become layers only
// where they must.
//
// One thread. Invariant: shapes_[i] is the output of layer i; variables_ are those of the layers.
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
  // Layers are called so from now on, where they are given no name: as the operator at hand.
  void SetName(const std::string& name);
  // Adds a layer and infers its shape. Variables' names lack the layer's. name: as in the file; "": as SetName says.
  // Errors: INVALID_ARGUMENT, the layer does not fit its inputs; UNIMPLEMENTED, too many layers.
  absl::StatusOr<int> Add(LayerKind kind, v1::Layer layer, const std::vector<int>& inputs,
                          std::vector<OnnxVariable> variables = {}, const std::string& name = "");
  // Turns the layer's output into output * scale + offset, by its last axis, by its variables or fields. False: it
  // cannot take them.
  bool FoldInto(int id, absl::Span<const float> scale, absl::Span<const float> offset);
  ImportedOnnx Take();

  // ---- values ----
  // A layer whose output has the view's numbers in their order.
  absl::StatusOr<int> Place(const OnnxView& view);
  // The same with the view's axes in this order.
  absl::StatusOr<int> PlaceInOrder(const OnnxView& view, const std::vector<int>& order);
  // [channels, height, width] or [channels, steps] with the channels last.
  absl::StatusOr<int> PlaceChannelsLast(const OnnxView& view);
  // The value as one row of numbers, in the order of a layer's output; `order` becomes the value's place of each of
  // them.
  absl::StatusOr<int> PlaceRow(const OnnxView& x, std::vector<int64_t>* order);
  absl::StatusOr<OnnxView> TransposedView(const OnnxView& view, const std::vector<int>& order);

  // ---- what there is ----
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
  std::string name_;                   // of layers to come
  std::map<std::string, int> placed_;  // by what Place was asked for
};

}  // namespace cairn
