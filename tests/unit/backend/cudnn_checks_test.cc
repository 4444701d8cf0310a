// Goal: numbers that a layer of categories or an Embedding does not accept, and that only the device has, end the step
// with the error that the CPU backends give, before any gradient is told; the next step has the bits of one without
// them. What categories are made of is exact also where a job computes in 16 bits.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/backend/beside_reference.h"
#include "tests/unit/backend/cudnn_host_machine.h"
#include "worker/backend/cudnn/program.h"

namespace cairn {
namespace {

using cudnn::HostMachine;

constexpr StepInfo kInfo{.seed = 11, .step = 5, .replica = 3};

absl::StatusOr<std::unique_ptr<Program>> OnHost(std::shared_ptr<const Graph> graph, const ProgramOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const cudnn::Precision precision, cudnn::PrecisionOf(options));
  return cudnn::MakeProgram(std::move(graph), options, precision,
                            std::make_unique<HostMachine>(precision, HostMachine::Copies::kLate));
}

// Numbers go through a Rescaling, so that the host does not know them.
std::string Computed(const std::string& layers, const std::string& shape = "2") {
  return "layers { input { shape: " + shape + " } } layers { rescaling { scale: 2 } } layers { name: 'it' " + layers +
         " } layers { flatten {} } layers { dense { units: 3 activation: SOFTMAX } }";
}

struct Refused {
  std::string layer;
  float number = 0;  // half of what the layer takes
};

TEST(CudnnChecks, NumbersThatALayerRefusesAreItsError) {
  const float none = std::numeric_limits<float>::quiet_NaN();
  for (const Refused& c :
       {Refused{"category_encoding { num_tokens: 7 }", 3.5f},
        Refused{"category_encoding { num_tokens: 7 output_mode: COUNT }", -0.5f},
        Refused{"category_encoding { num_tokens: 7 }", 1.25f}, Refused{"category_encoding { num_tokens: 7 }", none},
        Refused{"hashing { num_bins: 5 }", 0x1p63f},
        Refused{"integer_lookup { vocabulary: [0, 2, 4] num_oov_indices: 0 }", 2.5f},
        Refused{"integer_lookup { vocabulary: [0, 2, 4] }", 0.25f},
        Refused{"embedding { input_dim: 5 output_dim: 2 }", 2.5f},
        Refused{"embedding { input_dim: 5 output_dim: 2 }", -0.5f},
        Refused{"spectral_normalization { layer { embedding { input_dim: 5 output_dim: 2 } } }", 9},
        Refused{"embedding { input_dim: 5 output_dim: 2 }", none}}) {
    SCOPED_TRACE(c.layer);
    BesideReference beside({"refused", Computed(c.layer)}, 4);
    beside.Make(OnHost);
    if (testing::Test::HasFatalFailure()) return;
    Program& program = *beside.program();
    Batch batch = CaseBatch(*beside.graph(), beside.options().loss, 4, 7);
    for (float& number : batch.inputs.mutable_floats()) number = 1;
    std::vector<float> right(beside.graph()->space_size()), gradient(right);
    ASSERT_TRUE(program.TrainStep(batch, kInfo, beside.values(), absl::MakeSpan(right), nullptr).ok());
    batch.inputs.mutable_floats()[5] = c.number;
    const absl::Status expected =
        beside.reference().TrainStep(batch, kInfo, beside.values(), absl::MakeSpan(gradient), nullptr).status();
    ASSERT_TRUE(absl::IsInvalidArgument(expected)) << expected;
    for (int again = 0; again < 2; ++again) {  // on a GPU what was recorded
      EXPECT_EQ(program
                    .TrainStep(batch, kInfo, beside.values(), absl::MakeSpan(gradient),
                               [](int64_t, int64_t) { ADD_FAILURE() << "a gradient was told"; })
                    .status(),
                expected);
      EXPECT_EQ(program.Evaluate(batch, beside.values()).status(), expected);
      EXPECT_EQ(program.Predict(batch, beside.values()).status(), expected);
    }
    batch.inputs.mutable_floats()[5] = 1;
    ASSERT_TRUE(program.TrainStep(batch, kInfo, beside.values(), absl::MakeSpan(gradient), nullptr).ok());
    EXPECT_EQ(std::memcmp(gradient.data(), right.data(), right.size() * sizeof(float)), 0);
  }
}

// Of several numbers and of a layer with several inputs, the first one.
TEST(CudnnChecks, TheFirstRefusedNumbersAreNamed) {
  BesideReference beside(
      {"crossed",
       "layers { name: 'a' input { shape: 1 } } layers { name: 'x' rescaling { scale: 2 } } layers { "
       "name: 'b' input { shape: 1 } } layers { name: 'y' inputs: 'b' rescaling { scale: 2 } } "
       "layers { inputs: ['x', 'y'] hashed_crossing { num_bins: 5 output_mode: ONE_HOT } } "
       "layers { flatten {} } layers { dense { units: 3 activation: SOFTMAX } }"},
      3);
  beside.Make(OnHost);
  if (testing::Test::HasFatalFailure()) return;
  Batch batch = CaseBatch(*beside.graph(), beside.options().loss, 3, 7);
  const std::vector<float> numbers = {1, 2, 3, 0.25f, 0.125f, 4};
  std::copy(numbers.begin(), numbers.end(), batch.inputs.mutable_floats().begin());
  const absl::Status expected = beside.reference().Predict(batch, beside.values()).status();
  ASSERT_TRUE(absl::IsInvalidArgument(expected)) << expected;
  EXPECT_EQ(beside.program()->Predict(batch, beside.values()).status(), expected);
}

// With the eight bits of bfloat16, 257 would be 256.
TEST(CudnnChecks, CategoriesAreMadeOfExactNumbers) {
  for (const char* layer : {"integer_lookup { vocabulary: [513, 257, 511] output_mode: ONE_HOT }",
                            "hashing { num_bins: 7 output_mode: ONE_HOT }",
                            "discretization { bin_boundaries: [256.5, 512.5, 513.5] output_mode: ONE_HOT }"}) {
    SCOPED_TRACE(layer);
    BesideReference wide({"exact", Computed(layer, "[3, 1]")}, 2),
        narrow({"exact", Computed(layer, "[3, 1]")}, 2, v1::BFLOAT16);
    wide.Make(OnHost);
    narrow.Make(OnHost);
    if (testing::Test::HasFatalFailure()) return;
    Batch batch = CaseBatch(*wide.graph(), wide.options().loss, 2, 7);
    const std::vector<float> numbers = {128.5f, 128, 256.5f, 256, 257, 255.5f};
    std::copy(numbers.begin(), numbers.end(), batch.inputs.mutable_floats().begin());
    const auto expected = wide.reference().Predict(batch, wide.values()),
               exact = wide.program()->Predict(batch, wide.values()),
               rounded = narrow.program()->Predict(batch, narrow.values());
    ASSERT_TRUE(expected.ok() && exact.ok() && rounded.ok()) << exact.status() << rounded.status();
    EXPECT_LE(Distance(exact->floats(), expected->floats()), 1e-5 * Norm(expected->floats()));
    EXPECT_LE(Distance(rounded->floats(), expected->floats()), 2e-2 * Norm(expected->floats()));
  }
}

}  // namespace
}  // namespace cairn
