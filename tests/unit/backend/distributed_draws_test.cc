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

constexpr int kSteps = 6, kFeatures = 16;  // numbers of a step

// The gradient of the last kernel, for one example of ones and an output that is off by a half: it shows what the
// dropouts keep.
// step: the shape of a step, of kFeatures numbers.
std::vector<float> KeptOf(Backend& backend, const std::string& dropout,
                          const std::string& step = std::to_string(kFeatures)) {
  const auto graph = std::make_shared<const Graph>(
      Graph::Build(FromText<v1::Model>(absl::StrCat(
                       "layers { name: 'x' input { shape: [", kSteps, ", ", step,
                       "] } } layers { name: 'a' inputs: 'x' ", dropout, "} layers { name: 'b' inputs: 'x' ", dropout,
                       "} layers { name: 'd' inputs: 'a' flatten {} } layers { name: 'e' inputs: 'b' flatten {} } ",
                       "layers { inputs: ['d', 'e'] concatenate {} } layers { dense { units: 1 use_bias: false } }")))
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

TEST(DistributedDraws, OfEachKindOfNoise) {
  for (const char* noise :
       {"gaussian_noise { stddev: 0.5 }", "gaussian_dropout { rate: 0.5 }", "alpha_dropout { rate: 0.5 }"}) {
    SCOPED_TRACE(noise);
    const std::string layer = absl::StrCat("time_distributed { layer { ", noise, " } }");
    const std::vector<float> kept = KeptOf(*MakeOnednnBackend(), layer);
    EXPECT_THAT(kept, testing::Pointwise(testing::FloatNear(1e-6f), KeptOf(*MakeReferenceBackend(), layer)));
    std::set<std::vector<float>> steps;
    for (auto step = kept.begin(); step != kept.end(); step += kFeatures) steps.emplace(step, step + kFeatures);
    EXPECT_EQ(steps.size(), 2u * kSteps) << "no two steps have one mask";
  }
}

// A channel of a step is kept or dropped as a whole.
TEST(DistributedDraws, OfChannels) {
  constexpr int kChannels = 4;
  const std::pair<const char*, const char*> layers[] = {
      {"spatial_dropout1d", "4, 4"}, {"spatial_dropout2d", "2, 2, 4"}, {"spatial_dropout3d", "2, 2, 1, 4"}};
  for (const auto& [name, shape] : layers) {
    SCOPED_TRACE(name);
    const std::string layer = absl::StrCat("time_distributed { layer { ", name, " { rate: 0.5 } } }");
    const std::vector<float> kept = KeptOf(*MakeOnednnBackend(), layer, shape);
    EXPECT_EQ(kept, KeptOf(*MakeReferenceBackend(), layer, shape));
    std::set<std::vector<float>> steps;
    for (auto step = kept.begin(); step != kept.end(); step += kFeatures) {
      steps.emplace(step, step + kChannels);
      for (int i = kChannels; i < kFeatures; ++i) EXPECT_EQ(step[i], step[i % kChannels]);
    }
    EXPECT_GT(steps.size(), 2u) << "steps draw for themselves";
  }
}

}  // namespace
}  // namespace cairn
