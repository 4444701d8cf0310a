// Goal: a layer within a TimeDistributed draws anew for each step, as Keras calls the layer for each, and for each
// TimeDistributed; both backends draw the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/backend/layer_cases.h"
#include "worker/backend/onednn/onednn_backend.h"
#include "worker/backend/reference/reference_backend.h"

namespace cairn {
namespace {

constexpr int kSteps = 6, kFeatures = 16;

// The gradient of the last kernel, for one example of ones and an output that is off by a half: it shows what the
// dropouts keep.
std::vector<float> KeptOf(Backend& backend, const std::string& dropout) {
  const auto graph = std::make_shared<const Graph>(
      Graph::Build(FromText<v1::Model>(absl::StrCat(
                       "layers { name: 'x' input { shape: [", kSteps, ", ", kFeatures,
                       "] } } layers { name: 'a' inputs: 'x' ", dropout, "} layers { name: 'b' inputs: 'x' ", dropout,
                       "} layers { inputs: ['a', 'b'] concatenate { axis: 1 } } ",
                       "layers { flatten {} } layers { dense { units: 1 use_bias: false } }")))
          .value());
  ProgramOptions options;
  options.batch_max = 1;
  options.loss.set_kind(v1::Loss::MEAN_SQUARED_ERROR);
  const auto program = backend.Compile(graph, options);
  EXPECT_TRUE(program.ok()) << program.status();
  Batch batch;
  batch.examples = batch.label_size = 1;
  batch.inputs = Buffer::Allocate(kSteps * kFeatures * sizeof(float));
  for (float& x : batch.inputs.mutable_floats()) x = 1;
  const float label = -0.5f;
  batch.labels = Buffer::CopyOf(&label, sizeof(label));
  const std::vector<float> values(static_cast<size_t>(graph->space_size()), 0.0f);
  std::vector<float> gradients(values.size());
  StepInfo info;
  info.seed = 3;
  info.step = 5;
  EXPECT_TRUE((*program)->TrainStep(batch, info, values, absl::MakeSpan(gradients), {}).ok());
  gradients.resize(2 * kSteps * kFeatures);
  return gradients;
}

TEST(DistributedDraws, AreNewForEachStepAndForEachLayer) {
  for (const std::string& dropout :
       {absl::StrCat("time_distributed { layer { dropout { rate: 0.5 noise_shape: ", kFeatures, " } } }"),
        std::string("time_distributed { layer { dropout { rate: 0.5 } } }")}) {
    SCOPED_TRACE(dropout);
    const std::vector<float> kept = KeptOf(*MakeOnednnBackend(), dropout);
    EXPECT_EQ(kept, KeptOf(*MakeReferenceBackend(), dropout));
    std::set<std::vector<float>> steps;
    for (auto step = kept.begin(); step != kept.end(); step += kFeatures) steps.emplace(step, step + kFeatures);
    EXPECT_EQ(steps.size(), 2u * kSteps) << "no two steps have one mask";
    EXPECT_THAT(kept, testing::Contains(0.0f));
    EXPECT_THAT(kept, testing::Contains(2.0f));  // 2 * 0.5 / (1 - rate)
  }
}

}  // namespace
}  // namespace cairn
