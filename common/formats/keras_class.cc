#include "common/formats/keras_class.h"

#include "common/model/keras/keras_common.h"
#include "common/model/layer_type.h"

namespace cairn {

std::string KerasClassOf(const Node& node) {
  const LayerType& type = TypeOf(node.kind);
  return type.keras_class != nullptr ? type.keras_class(node) : type.keras[0].name;
}

absl::StatusOr<OrderedJson> KerasLayerConfig(const Node& node) {
  KerasWriter config(node);
  const LayerType& type = TypeOf(node.kind);
  if (type.write_keras != nullptr) type.write_keras(node, config);
  WriteKerasCommon(node.layer, config);
  return config.Take();
}

}  // namespace cairn
