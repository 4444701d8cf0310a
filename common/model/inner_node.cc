#include "common/model/inner_node.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/model/layer_type.h"

namespace cairn {

Node InnerNode(const Node& outer) {
  const v1::Layer& layer = outer.layer.time_distributed().layer();
  const LayerType* const type = FindLayerType(layer.kind_case());
  CAIRN_CHECK(type != nullptr, "the layer within is checked first");
  Node inner = outer;
  inner.kind = type->kind;
  inner.name = absl::StrCat(outer.name, "/", layer.name());
  inner.layer = layer;
  if (outer.layer.has_training()) inner.layer.set_training(outer.layer.training());
  return inner;
}

}  // namespace cairn
