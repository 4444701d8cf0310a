// The masks of steps that a Functional model of Keras 3 writes down. Keras computes a mask while the model is built, by
// operations on tensors, and names the result as the argument `mask` of each call that it goes to:
//
//   an Embedding with mask_zero    NotEqual(ids, 0)
//   a Masking layer                Any(NotEqual(x, mask_value), axis=-1)
//   a Concatenate of features      Any(Concatenate(a part for each input)), where a part is LogicalOr(ExpandDims(mask),
//                                  ZerosLike(x)), or OnesLike(x) of an input without a mask
//   a layer that adds, ...         LogicalOr(mask, mask)
//
// Cairn carries masks from layer to layer by itself (common/model/masks.h). So those of a file are compared with its
// own, and the operations that make nothing else are left out.
//
// Used by one thread; the JSON outlives it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/formats/keras_call.h"
#include "common/model/keras/keras_config.h"

namespace cairn {

// Which steps a mask leaves out.
struct KerasMaskOrigin {
  bool none = false;             // it leaves out no step
  std::set<std::string> makers;  // KerasTensorName: the mask of each of these calls, which are all the same
};

class KerasMasks {
 public:
  // config: a Functional model's.
  explicit KerasMasks(const Json& config);

  // Whether the layer is an operation that nothing but masks takes.
  bool IsMaskOnly(const std::string& layer) const { return mask_only_.contains(layer); }

  // tensor: KerasTensorName. nullopt: it is no mask that Keras makes by itself, or of several layers.
  std::optional<KerasMaskOrigin> OriginOf(const std::string& tensor);

 private:
  struct Call {
    std::string layer, type;
    const Json *config, *node;
    bool operation = false;
  };

  void FindMaskOnly(const Json& config);
  const Call* Find(const std::string& tensor) const;
  std::optional<KerasMaskOrigin> Compute(const Call& call, int depth);
  std::optional<KerasMaskOrigin> OriginOf(const std::string& tensor, int depth);
  std::optional<KerasMaskOrigin> Compared(const Call& call, const char* maker) const;
  std::optional<KerasMaskOrigin> Joined(const std::vector<std::string>& masks, bool all_needed, int depth);

  std::map<std::string, Call> calls_;  // by KerasTensorName
  std::map<std::string, std::optional<KerasMaskOrigin>> known_;
  std::set<std::string> mask_only_;
};

}  // namespace cairn
