// Goal: whatever bytes come as a job, CheckJob answers: a graph that keeps its invariants, or INVALID_ARGUMENT with a
// sentence. It never crashes. Seeds are printed with a failure.
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include "common/base/limits.h"
#include "common/base/random.h"
#include "common/model/job_check.h"
#include "tests/unit/model/model_text.h"

namespace cairn {
namespace {

// Small numbers from a seed.
class Dice {
 public:
  explicit Dice(uint32_t seed) : seed_(seed) {}
  uint32_t Roll(uint32_t sides) { return Philox({seed_, 11}, {next_++, 0, 0, 0})[0] % sides; }

 private:
  uint32_t seed_, next_ = 0;
};

const char kJob[] = R"(
  data { path: "x" } loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY } optimizer { adamw { beta_1: 0.8 } } batch_size: 64 replicas: 3
  metrics { kind: TOP_K_ACCURACY k: 2 } partition_bytes: 4096
  model {
    layers { input { shape: [12, 12, 3] } }
    layers { rescaling { scale: 0.5 } }
    layers { name: 'a' conv2d { filters: 4 kernel_size: 3 strides: 2 padding: SAME kernel_initializer { kind: HE_NORMAL } } }
    layers { name: 'b' depthwise_conv2d { kernel_size: [3, 2] dilation_rate: 2 padding: SAME } }
    layers { inputs: ['a', 'b'] add {} }
    layers { inputs: ['add', 'a'] concatenate {} }
    layers { batch_normalization { momentum: 0.9 } }
    layers { zero_padding2d { padding: [1, 2] } }
    layers { max_pooling2d { pool_size: 2 } }
    layers { average_pooling2d { padding: SAME } }
    layers { activation { activation: LEAKY_RELU } }
    layers { dropout { rate: 0.5 } }
    layers { global_average_pooling2d {} }
    layers { dense { units: 5 activation: SOFTMAX } }
  })";

// Adds, removes or moves a layer, or changes its type or inputs; or replaces a number of the job.
void MutateMessage(Dice* dice, v1::JobSpec* spec) {
  auto* layers = spec->mutable_model()->mutable_layers();
  const int a = static_cast<int>(dice->Roll(layers->size())), b = static_cast<int>(dice->Roll(layers->size()));
  switch (dice->Roll(6)) {
    case 0: layers->SwapElements(a, b); break;
    case 1: layers->DeleteSubrange(a, layers->size() > 1 ? 1 : 0); break;
    case 2: *layers->Add() = v1::Layer(layers->Get(a)); break;
    case 3: layers->Mutable(a)->add_inputs(layers->Get(b).name().empty() ? "dense" : layers->Get(b).name()); break;
    case 4: layers->Mutable(a)->clear_inputs(); break;
    default: {
      const int32_t number = static_cast<int32_t>(dice->Roll(7) == 0 ? 2147483647 : dice->Roll(9)) - 2;
      v1::Layer* layer = layers->Mutable(a);
      if (layer->has_conv2d()) layer->mutable_conv2d()->set_filters(number);
      if (layer->has_depthwise_conv2d()) layer->mutable_depthwise_conv2d()->set_depth_multiplier(number);
      if (layer->has_dense()) layer->mutable_dense()->set_units(number);
      if (layer->has_input()) layer->mutable_input()->set_shape(static_cast<int>(dice->Roll(3)), number);
      if (layer->has_max_pooling2d()) layer->mutable_max_pooling2d()->set_pool_size(0, number);
    }
  }
}

void MutateBytes(Dice* dice, std::string* bytes) {
  const uint32_t place = dice->Roll(static_cast<uint32_t>(bytes->size()));
  if (dice->Roll(4) == 0) {
    bytes->erase(place, 1 + dice->Roll(3));
  } else {
    (*bytes)[place] = static_cast<char>(dice->Roll(256));
  }
}

void ExpectInvariants(const Graph& graph) {
  int64_t end = 0;
  for (size_t v = 0; v < graph.variables().size(); ++v) {
    const Variable& variable = graph.variables()[v];
    ASSERT_GT(variable.size, 0);
    ASSERT_EQ(variable.size, NumElements(variable.shape));
    ASSERT_EQ(variable.offset % kSpaceAlignment, 0);
    ASSERT_GE(variable.offset, end);
    end = variable.offset + variable.size;
  }
  ASSERT_GE(graph.space_size(), end);
  ASSERT_EQ(graph.space_size() % kSpaceAlignment, 0);
  ASSERT_LE(graph.space_size(), kParametersMax);
  for (size_t id = 0; id < graph.nodes().size(); ++id) {
    const Node& node = graph.nodes()[id];
    ASSERT_EQ(node.id, static_cast<int>(id));
    ASSERT_EQ(node.inputs.empty(), id == 0);
    for (int input : node.inputs) ASSERT_LT(input, node.id);
    for (int64_t dim : node.output) ASSERT_GT(dim, 0);
    ASSERT_LE(NumElements(node.output), kLayerOutputMax);
  }
}

void ExpectAnAnswer(const v1::JobSpec& spec, int* accepted) {
  const absl::StatusOr<CheckedJob> job = CheckJob(spec);
  if (!job.ok()) {
    ASSERT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << job.status();
    ASSERT_GT(job.status().message().size(), 20u) << job.status();
    return;
  }
  ++*accepted;
  ExpectInvariants(job->graph);
  const absl::StatusOr<CheckedJob> again = CheckJob(job->spec);
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->spec.SerializeAsString(), job->spec.SerializeAsString());
}

TEST(JobCheckRandom, MutatedMessages) {
  const v1::JobSpec good = FromText<v1::JobSpec>(kJob);
  ASSERT_TRUE(CheckJob(good).ok()) << CheckJob(good).status();
  int accepted = 0;
  constexpr int kSeeds = 5000;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Dice dice(seed);
    v1::JobSpec spec = good;
    for (uint32_t i = 0, n = 1 + dice.Roll(3); i < n; ++i) MutateMessage(&dice, &spec);
    ExpectAnAnswer(spec, &accepted);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(accepted, kSeeds / 20) << "hardly a mutant is good: the invariants go unchecked";
  EXPECT_LT(accepted, kSeeds / 2) << "hardly a mutant is bad";
}

TEST(JobCheckRandom, MutatedBytes) {
  google::protobuf::LogSilencer silencer;
  const std::string good = FromText<v1::JobSpec>(kJob).SerializeAsString();
  int accepted = 0, parsed = 0;
  constexpr int kSeeds = 20000;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Dice dice(seed + 1000000);
    std::string bytes = good;
    for (uint32_t i = 0, n = 1 + dice.Roll(3); i < n; ++i) MutateBytes(&dice, &bytes);
    v1::JobSpec spec;
    if (!spec.ParseFromString(bytes)) continue;
    ++parsed;
    ExpectAnAnswer(spec, &accepted);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(parsed, kSeeds / 10);
  EXPECT_GT(accepted, kSeeds / 100);
}

}  // namespace
}  // namespace cairn
