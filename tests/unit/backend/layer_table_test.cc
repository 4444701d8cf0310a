// Goal: the table of layers is complete and says which backend lacks what. A layer without a row in a backend is
// printed here by name.
#include <set>
#include <string>
#include <vector>

#include "common/formats/keras_order.h"
#include "common/model/layer_type.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/backend/cudnn/layer.h"
#include "worker/backend/onednn/layer.h"
#include "worker/backend/reference/reference_layer.h"

namespace cairn {
namespace {

using testing::UnorderedElementsAre;

template <typename Has>
std::vector<std::string> Missing(Has has) {
  std::vector<std::string> missing;
  for (const LayerType* type : LayerTypes()) {
    if (!has(type->kind)) missing.push_back(type->name);
  }
  return missing;
}

// `external` is computed by a program (worker/backend/external); string_lookup and text_vectorization by the data
// pipeline (ComputedGraph).
TEST(LayerTable, EveryBackendHasEveryLayerButThese) {
  EXPECT_THAT(Missing([](LayerKind kind) { return reference::FindLayer(kind) != nullptr; }),
              UnorderedElementsAre("external", "string_lookup", "text_vectorization"))
      << "reference";
  EXPECT_THAT(Missing([](LayerKind kind) { return onednn::FindLayer(kind) != nullptr; }),
              UnorderedElementsAre("external", "string_lookup", "text_vectorization"))
      << "onednn";
  EXPECT_THAT(Missing([](LayerKind kind) { return cudnn::FindLayer(kind) != nullptr; }),
              UnorderedElementsAre("external", "string_lookup", "text_vectorization"))
      << "cudnn";
}

// Every layer of the proto has one row, at its place, with all that a row needs; names are unique.
TEST(LayerTable, RowsAreWhole) {
  const google::protobuf::OneofDescriptor* kinds = v1::Layer::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < kinds->field_count(); ++i) {
    EXPECT_NE(FindLayerType(static_cast<v1::Layer::KindCase>(kinds->field(i)->number())), nullptr)
        << kinds->field(i)->name();
  }
  EXPECT_EQ(static_cast<int>(LayerTypes().size()), kinds->field_count());
  std::set<std::string> names, classes, operators;
  std::set<int> fields;
  for (size_t i = 0; i < LayerTypes().size(); ++i) {
    const LayerType& type = *LayerTypes()[i];
    EXPECT_EQ(static_cast<size_t>(type.kind), i) << type.name;
    EXPECT_EQ(&TypeOf(type.kind), &type);
    EXPECT_TRUE(names.insert(type.name).second) << type.name;
    EXPECT_TRUE(fields.insert(type.field).second) << type.name;
    EXPECT_TRUE(type.infer != nullptr && type.write_onnx != nullptr) << type.name;
    EXPECT_LE(type.inputs_min, type.inputs_max) << type.name;
    // An operation has the class of its kind (keras_operations.h), which may also be a layer's.
    if (type.keras.empty()) {
      EXPECT_TRUE(type.keras_class != nullptr) << type.name;
    } else {
      EXPECT_EQ(KerasSnakeCase(type.keras[0].name), type.name);
    }
    for (const KerasClass& keras : type.keras) EXPECT_TRUE(classes.insert(keras.name).second) << keras.name;
    for (const OnnxOperator& op : type.onnx) EXPECT_TRUE(operators.insert(op.name).second) << op.name;
  }
}

TEST(LayerTable, FindsByName) {
  EXPECT_EQ(FindKerasClass("LeakyReLU").type, &TypeOf(LayerKind::kActivation));
  EXPECT_EQ(FindKerasClass("PReLU").type, &TypeOf(LayerKind::kPReLU));
  EXPECT_EQ(FindKerasClass("LSTMCellOfMine").type, nullptr);
  EXPECT_NE(FindOnnxOperator("Conv"), nullptr);
  EXPECT_EQ(FindOnnxOperator("Conv2"), nullptr);
  EXPECT_EQ(FindLayerType(v1::Layer::KIND_NOT_SET), nullptr);
}

}  // namespace
}  // namespace cairn
