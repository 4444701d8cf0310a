// Goal: what an optimizer keeps of a variable has Keras' names and shapes, lies within the variable's numbers and
// overlaps nothing; which variables are updated as a whole.
#include "common/model/optimizer_variables.h"

#include <gtest/gtest.h>

#include "common/model/optimizer_slots.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

Variable Named(const std::string& name, const Shape& shape) {
  Variable v;
  v.name = name;
  v.shape = shape;
  v.size = NumElements(shape);
  return v;
}

std::string Text(const std::vector<SlotTensor>& tensors) {
  std::string text;
  for (const SlotTensor& t : tensors) {
    text += t.name + " " + std::to_string(t.slot) + "+" + std::to_string(t.offset) + " " + ToString(t.shape) + "; ";
  }
  return text;
}

TEST(SlotTensors, HaveKerasShapes) {
  const auto of = [](const std::string& optimizer, const Shape& shape) {
    return Text(SlotTensorsOf(FromText<v1::Optimizer>(optimizer), Named("v", shape)));
  };
  EXPECT_EQ(of("lamb {}", {4, 3}), "momentum 0+0 [4,3]; velocity 1+0 [4,3]; ");
  EXPECT_EQ(of("adafactor {}", {4, 3}), "r 0+0 [4]; c 0+4 [3]; ");
  EXPECT_EQ(of("adafactor {}", {5, 2, 4, 3}), "r 0+0 [5,2,4]; c 0+40 [5,2,3]; ");
  EXPECT_EQ(of("adafactor {}", {7}), "velocity 0+0 [7]; ");
  EXPECT_EQ(of("adafactor {}", {7, 1}), "r 0+0 [7]; ");
  EXPECT_EQ(of("adafactor {}", {1, 7}), "c 0+0 [7]; ");
  EXPECT_EQ(of("adafactor {}", {1, 1}), "c 0+0 [1]; ");
  EXPECT_EQ(of("adafactor {} ema {}", {2, 2}), "r 0+0 [2]; c 0+2 [2]; ema 1+0 [2,2]; ");
}

TEST(SlotTensors, FitIntoTheVariable) {
  const v1::Optimizer adafactor = FromText<v1::Optimizer>("adafactor {}");
  for (const int64_t count : {1, 3}) {
    for (int64_t rows = 1; rows < 5; ++rows) {
      for (int64_t columns = 1; columns < 5; ++columns) {
        const Variable v = Named("v", {count, rows, columns});
        int64_t end = 0;
        for (const SlotTensor& t : SlotTensorsOf(adafactor, v)) {
          EXPECT_EQ(t.offset, end);
          end += NumElements(t.shape);
        }
        EXPECT_LE(end, v.size) << ToString(v.shape);
      }
    }
  }
}

TEST(UpdatedAsAWhole, DependsOnTheOptimizer) {
  v1::Optimizer muon = FromText<v1::Optimizer>("muon { exclude_embeddings: true exclude_layers: 'head' }");
  const v1::Optimizer lamb = FromText<v1::Optimizer>("lamb {}"), adam = FromText<v1::Optimizer>("adam {}");
  const Variable matrix = Named("dense/kernel", {4, 3}), vector = Named("dense/bias", {3});
  const Variable head = Named("head/kernel", {4, 3}), ids = Named("token_Embedding/embeddings", {9, 3});
  Variable frozen = matrix;
  frozen.kind = VariableKind::kFrozen;
  EXPECT_TRUE(UpdatedAsAWhole(lamb, matrix));
  EXPECT_TRUE(UpdatedAsAWhole(lamb, vector));
  EXPECT_FALSE(UpdatedAsAWhole(lamb, frozen));
  EXPECT_FALSE(UpdatedAsAWhole(adam, matrix));
  EXPECT_TRUE(UpdatedAsAWhole(muon, matrix));
  EXPECT_FALSE(UpdatedAsAWhole(muon, vector));
  EXPECT_FALSE(UpdatedAsAWhole(muon, head));
  EXPECT_FALSE(UpdatedAsAWhole(muon, ids));
  EXPECT_FALSE(UpdatedAsAWhole(muon, Named("conv2d/kernel", {3, 3, 4, 3})));
  muon.mutable_muon()->set_exclude_embeddings(false);
  EXPECT_TRUE(UpdatedAsAWhole(muon, ids));
}

}  // namespace
}  // namespace cairn
