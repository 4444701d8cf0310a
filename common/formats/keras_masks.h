// The step masks in a Functional model of Keras 3. While a model is built, Keras computes masks by operations on
// tensors and records the result as the argument `mask` of each call that receives it:
//
//   an Embedding with mask_zero    NotEqual(ids, 0)
//   a Masking layer                Any(NotEqual(x, mask_value), axis=-1)
//   a Concatenate of features      Any(Concatenate(a part for each input)), where a part is LogicalOr(ExpandDims(mask),
//                                  ZerosLike(x)), or OnesLike(x) of an input without a mask
//   a layer that adds, ...         LogicalOr(mask, mask)
//
// Cairn propagates masks from layer to layer by itself (common/model/masks.h). So the masks of a file are compared with
// Cairn's, and operations that only compute masks are omitted.
//
// Used by one thread; the JSON must outlive this object.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/formats/keras_call.h"
#include "common/model/keras/keras_config.h"

namespace cairn {

// Where a mask comes from.
struct KerasMaskOrigin {
  bool none = false;             // it masks no step
  std::set<std::string> makers;  // KerasTensorName of the calls that make this mask; their masks are equal
};

class KerasMasks {
 public:
  // config: that of a Functional model.
  explicit KerasMasks(const Json& config);

  // Whether the layer is an operation whose output is used only by masks.
  bool IsMaskOnly(const std::string& layer) const { return mask_only_.contains(layer); }

  // tensor: KerasTensorName. nullopt: Keras does not create such a mask by itself, or it combines different masks.
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
