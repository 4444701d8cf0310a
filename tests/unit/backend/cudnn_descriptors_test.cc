// Goal: what cuDNN and cuBLASLt can be asked without a device: they accept the descriptors of every convolution and
// product of the ready-made models, in every precision; engines are judged by their notes; errors say what was tried.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>

#include "common/model/ready_made/ready_made.h"
#include "tests/unit/backend/cudnn_host_machine.h"
#include "tests/unit/backend/cudnn_lacks.h"
#include "tests/unit/backend/layer_cases.h"
#include "worker/backend/cudnn/builder.h"
#include "worker/backend/cudnn/engine.h"
#include "worker/backend/cudnn/gemm.h"

namespace cairn::cudnn {
namespace {

using ::testing::HasSubstr;

// A GPU as cuDNN describes one: an H100 80GB HBM3.
constexpr char kH100[] = R"({"deviceVer": 900,
  "driverVer": 13000,
  "cudaDeviceId": 0,
  "deviceName": "NVIDIA H100 80GB HBM3",
  "totalGlobalMem": 85017493504,
  "maxGridSize": [2147483647, 65535, 65535],
  "maxBlockSize": [1024, 1024, 64],
  "regsPerBlock": 65536,
  "multiProcessorCount": 132,
  "smClockRateKHz": 1980000,
  "memClockRateKHz": 2619000,
  "l2CacheSize": 52428800,
  "warpSize": 32,
  "maxSharedMemoryPerBlock": 49152,
  "maxSharedMemoryPerBlockOptin": 232448,
  "reservedSharedMemoryPerBlock": 1024,
  "maxRegistersPerSM": 65536,
  "pciDeviceId": 0,
  "maxCtasPerSM": 32,
  "maxThreadsPerBlock": 1024,
  "maxThreadsPerSM": 2048,
  "isTccDriver": 0,
  "supportCoopLaunch": 1})";

constexpr int kWindows = 60;  // of each precision

// Records what a plan asks for.
class Collector : public HostMachine {
 public:
  using HostMachine::HostMachine;
  absl::StatusOr<int64_t> Prepare(const Product& p) override {
    products.insert(p);
    return 0;
  }
  absl::StatusOr<int64_t> Prepare(const Convolution& c) override {
    convolutions.insert(c);
    return 0;
  }
  std::set<Product> products;
  std::set<Convolution> convolutions;
};

Collector CollectFrom(const ReadyMadeInfo& info, const Precision& precision) {
  v1::ReadyMade wanted;
  wanted.set_name(info.name);
  const auto graph = Graph::Build(MakeReadyMade(wanted).value());
  EXPECT_TRUE(graph.ok()) << graph.status();
  LoweringOptions options;
  options.examples = 32;
  options.precision = precision;
  options.loss = FromText<v1::Loss>("kind: SPARSE_CATEGORICAL_CROSSENTROPY");
  options.loss_plan = PlanLoss(*graph, options.loss);
  Collector machine(precision);
  const absl::Status lowered = LowerGraph(*graph, options, machine).status();
  EXPECT_TRUE(lowered.ok()) << lowered;
  return machine;
}

TEST(CudnnDescriptorsTest, OfAllReadyMadeModels) {
  int products = 0, convolutions = 0;
  for (const Precision& precision : {Precision{DType::kFloat32, false}, Precision{DType::kFloat32, true},
                                     Precision{DType::kBFloat16}, Precision{DType::kFloat16}}) {
    for (const ReadyMadeInfo& info : ReadyMadeModels()) {
      SCOPED_TRACE(info.name);
      const Collector machine = CollectFrom(info, precision);
      for (const Product& p : machine.products) {
        const auto made = ProductDescriptors::Make(p, precision);
        ASSERT_TRUE(made.ok()) << ToString(p) << ": " << made.status();
        ++products;
      }
      for (const Convolution& c : machine.convolutions) {
        for (const DType filter_gradient : {DType::kFloat32, precision.type}) {
          const auto made = MakeOperation(c, precision, filter_gradient);
          ASSERT_TRUE(made.ok()) << ToString(c) << ": " << made.status();
          ++convolutions;
        }
      }
    }
  }
  EXPECT_GT(products, 300);
  EXPECT_GT(convolutions, 300);
}

// cuDNN chooses and prepares engines for a GPU that is only described. So this test shows, without one, that no
// convolution of these models is left to our own slow kernels on such a GPU.
TEST(CudnnDescriptorsTest, AnH100HasEnginesForAllReadyMadeModels) {
  const auto device = DescribeDevice(kH100);
  if (!device.ok()) GTEST_SKIP() << "this cuDNN cannot be told of a device: " << device.status();
  const EngineTarget target{.device = &*device};
  int chosen = 0;
  int64_t workspace_bytes = 0;
  for (const Precision& precision : {Precision{DType::kFloat32, false}, Precision{DType::kFloat32, true},
                                     Precision{DType::kBFloat16}, Precision{DType::kFloat16}}) {
    for (const ReadyMadeInfo& info : ReadyMadeModels()) {
      const Collector machine = CollectFrom(info, precision);
      for (const Convolution& c : machine.convolutions) {
        const DType filter_gradient = c.kind == Convolution::kBackwardFilter ? precision.type : DType::kFloat32;
        const auto engines = FindEngines(target, c, precision, filter_gradient, 1);
        EXPECT_TRUE(engines.ok()) << info.name << ", " << Name(precision.type) << (precision.tf32 ? " tf32" : "")
                                  << ": " << engines.status();
        if (!engines.ok()) continue;
        workspace_bytes = std::max(workspace_bytes, engines->front().workspace_bytes);
        ++chosen;
      }
    }
  }
  std::printf("%d engines, at most %.0f MB of workspace\n", chosen, static_cast<double>(workspace_bytes) / 1e6);
}

// A window of any kind that Keras allows: odd channels, kernels larger than the picture, strides with dilation, padding
// as wide as the kernel.
Convolution AnyConvolution(std::mt19937& random) {
  const auto from = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  Convolution c;
  c.kind = static_cast<Convolution::Kind>(random() % 3);
  c.window.examples = from(1, 9);
  c.window.in[2] = from(1, 67);
  c.window.out[2] = from(1, 67);
  for (int i = 0; i < 2; ++i) {
    c.window.kernel[i] = from(1, 7);
    c.window.strides[i] = from(1, 3);
    c.window.dilation[i] = from(1, 3);
    c.window.pad[i] = from(0, c.window.kernel[i] - 1);
    const int64_t reach = c.window.dilation[i] * (c.window.kernel[i] - 1) + 1;
    c.window.in[i] = std::max<int64_t>(from(1, 20), reach - 2 * c.window.pad[i]);
    c.window.out[i] = (c.window.in[i] + 2 * c.window.pad[i] - reach) / c.window.strides[i] + 1;
  }
  if (c.kind == Convolution::kForward) {
    c.bias = random() % 2 != 0;
    c.relu = c.bias && random() % 2 != 0;  // relu alone is a launch of its own
  }
  return c;
}

// Where cuDNN has no engine, our own kernels compute, or bias and relu follow; any other answer would fail a job.
TEST(CudnnDescriptorsTest, AnH100HasEnginesOrNoneForAnyWindow) {
  const auto device = DescribeDevice(kH100);
  if (!device.ok()) GTEST_SKIP() << "this cuDNN cannot be told of a device: " << device.status();
  const EngineTarget target{.device = &*device};
  std::mt19937 random(1);
  for (const Precision& precision : {Precision{DType::kFloat32, false}, Precision{DType::kFloat32, true},
                                     Precision{DType::kBFloat16}, Precision{DType::kFloat16}}) {
    int none[3] = {}, none_fused = 0;
    for (int i = 0; i < kWindows; ++i) {
      const Convolution c = AnyConvolution(random);
      absl::Status status = FindEngines(target, c, precision, DType::kFloat32, 1).status();
      if (absl::IsUnimplemented(status) && c.kind == Convolution::kBackwardFilter)
        status = FindEngines(target, c, precision, precision.type, 1).status();
      EXPECT_TRUE(status.ok() || absl::IsUnimplemented(status))
          << Name(precision.type) << ": " << ToString(c) << ": " << status;
      if (status.ok()) continue;
      ++(c.bias || c.relu ? none_fused : none[c.kind]);
      if (std::getenv("CAIRN_TEST_PRINT") != nullptr)
        std::printf("%s: %s\n", Name(precision.type), std::string(status.message()).c_str());
    }
    std::printf(
        "%s%s: of %d windows without an engine: forward %d, with bias or relu %d, data gradient %d, kernel gradient "
        "%d\n",
        Name(precision.type), precision.tf32 ? " tf32" : "", kWindows, none[0], none_fused, none[1], none[2]);
  }
}

// What --cudnn-autotune chooses from: several engines, each with a name of its own, the heuristics' choice first.
TEST(CudnnDescriptorsTest, EnginesHaveNames) {
  const auto device = DescribeDevice(kH100);
  if (!device.ok()) GTEST_SKIP() << "this cuDNN cannot be told of a device: " << device.status();
  const EngineTarget target{.device = &*device};
  Convolution c;
  c.window = {.examples = 32, .in = {56, 56, 64}, .out = {56, 56, 64}, .kernel = {3, 3}, .pad = {1, 1}};
  for (const Convolution::Kind kind :
       {Convolution::kForward, Convolution::kBackwardData, Convolution::kBackwardFilter}) {
    c.kind = kind;
    const Precision precision{DType::kBFloat16, false, false};
    const auto one = FindEngines(target, c, precision, DType::kBFloat16, 1),
               all = FindEngines(target, c, precision, DType::kBFloat16, 12);
    ASSERT_TRUE(one.ok() && all.ok()) << one.status() << all.status();
    EXPECT_EQ(one->size(), 1u);
    EXPECT_GT(all->size(), 2u);
    std::set<std::string> names;
    for (const Engine& engine : *all) {
      EXPECT_THAT(engine.name, testing::StartsWith("engine "));
      names.insert(engine.name);
    }
    EXPECT_EQ(names.size(), all->size());
    std::printf("%zu engines: %s, %s ...\n", all->size(), all->front().name.c_str(), all->back().name.c_str());
  }
}

TEST(CudnnDescriptorsTest, AWindowThatDoesNotFitItsOutputIsRefusedWithItsName) {
  Convolution c;
  c.window = {.examples = 2, .in = {5, 5, 4}, .out = {9, 9, 4}, .kernel = {3, 3}};
  const auto made = MakeOperation(c, Precision{}, DType::kFloat32);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("cudnnBackendFinalize of a convolution's operation"));
}

TEST(CudnnDescriptorsTest, EnginesAreJudgedByTheirNotes) {
  const Precision strict{DType::kFloat32, false, true}, tf32{DType::kFloat32, true, true},
      bfloat16{DType::kBFloat16, false, true};
  const Precision fast{DType::kBFloat16, false, false};
  EXPECT_TRUE(Keeps(strict, {}));
  for (const auto note :
       {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, CUDNN_NUMERICAL_NOTE_WINOGRAD}) {
    EXPECT_FALSE(Keeps(strict, {note}));
    EXPECT_TRUE(Keeps(tf32, {note}));
    EXPECT_TRUE(Keeps(bfloat16, {note}));
  }
  for (const Precision& p : {strict, tf32, bfloat16}) EXPECT_FALSE(Keeps(p, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}));
  EXPECT_TRUE(Keeps(fast, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}));
  for (const Precision& p : {strict, tf32, bfloat16, fast})
    EXPECT_FALSE(Keeps(p, {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}));
}

TEST(CudnnDescriptorsTest, WithoutADeviceTheErrorsSayWhatWasTried) {
  const auto device = FindDevice(0);
  if (device.ok()) GTEST_SKIP() << "this machine has a GPU: " << device->name;
  EXPECT_EQ(device.status().code(), absl::StatusCode::kUnavailable) << device.status();
  EXPECT_EQ(FromCuda(cudaErrorMemoryAllocation, "cudaMalloc of 7 bytes").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(FromCuda(cudaErrorMemoryAllocation, "cudaMalloc of 7 bytes").message()),
              HasSubstr("cudaMalloc of 7 bytes: cudaErrorMemoryAllocation"));
  for (const cudaError_t lost : {cudaErrorIllegalAddress, cudaErrorECCUncorrectable, cudaErrorLaunchFailure}) {
    EXPECT_EQ(FromCuda(lost, "a step").code(), absl::StatusCode::kUnavailable)
        << "other workers may go on with the job";
  }
  EXPECT_EQ(FromCuda(cudaErrorInvalidValue, "a step").code(), absl::StatusCode::kInternal);
  EXPECT_EQ(FromCudnn(CUDNN_STATUS_NOT_SUPPORTED, "x").code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(FromCublas(CUBLAS_STATUS_NOT_SUPPORTED, "x").code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace cairn::cudnn
