// LayerState: computes the state of one layer of a data set, as Keras' adapt() does.
//
//   lookups, TextVectorization   tokens by how often they occur, the most frequent first; of those that are equally
//                                frequent the larger one first (by number, or by its bytes). Cut to max_tokens.
//                                TF_IDF: log(1 + examples / (1 + examples with the token))
//   Discretization               the quantiles of Keras 3's summary of all values as one array (summarize,
//                                compress_summary with epsilon), bit for bit
//   Normalization                mean and variance of each of its axes' numbers, in float64
//
// Used by one thread.
#pragma once

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "cairn/v1/model.pb.h"
#include "common/base/status.h"
#include "common/model/graph.h"
#include "common/model/text_function.h"

namespace cairn {

class LayerState {
 public:
  virtual ~LayerState() = default;
  // values: those of the layer's input in one example. Errors: INVALID_ARGUMENT says what is wrong with a value.
  virtual absl::Status Take(absl::Span<const TextOrNumber> values) = 0;
  // Writes the state to the layer. Errors: INVALID_ARGUMENT: there was nothing to compute it of.
  virtual absl::Status Finish(v1::Layer* layer) = 0;
  virtual std::string Description() const = 0;  // after Finish: "20 of 31 tokens"
};

// node: of a kind that IsUnadapted knows, with its fields filled in. shape: that of its input.
std::unique_ptr<LayerState> MakeLayerState(const Node& node, const Shape& shape);

// Keras 3's Discretization.adapt(values): at most num_bins - 1 boundaries.
std::vector<float> QuantileBoundaries(std::vector<float> values, double epsilon, int num_bins);

}  // namespace cairn
