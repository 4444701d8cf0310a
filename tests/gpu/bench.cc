// What a GPU's steps and kernels take.
//
//   gpu_bench step MODEL BATCH float32|tf32|bfloat16 [STEPS]   images/s of TrainStep alone: no ps, no data; the gradient reaches the host
//   gpu_bench roofline                                         bytes/s of each kind of kernel beside a copy within the device
//
// Exit 77 with the reason where there is no device.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/model/initializer.h"
#include "common/model/ready_made/ready_made.h"
#include "worker/backend/cudnn/kernels/kernels.h"
#include "worker/backend_select.h"

namespace cairn {
namespace {

constexpr int kSkip = 77;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "gpu_bench: %s\n", std::string(status.message()).c_str());
  return absl::IsUnavailable(status) ? kSkip : 1;
}

double Median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + x.size() / 2, x.end());
  return x[x.size() / 2];
}

// ---- a step ----

int Step(const std::string& name, int64_t batch_size, const std::string& precision, int steps) {
  auto backend = SelectBackend("gpu");
  if (!backend.ok()) return Fail(backend.status());
  v1::ReadyMade ready_made;
  ready_made.set_name(name);
  const auto layers = MakeReadyMade(ready_made);
  if (!layers.ok()) return Fail(layers.status());
  auto built = Graph::Build(*layers);
  if (!built.ok()) return Fail(built.status());
  const auto graph = std::make_shared<const Graph>(*std::move(built));

  ProgramOptions options;
  options.batch_max = batch_size;
  options.compute = precision == "bfloat16" ? v1::BFLOAT16 : v1::FLOAT32;
  options.allow_tf32 = precision == "tf32";
  options.loss.set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
  auto program = (*backend)->Compile(graph, options);
  if (!program.ok()) return Fail(program.status());
  std::vector<float> values(graph->space_size()), gradients(graph->space_size());
  InitializeRange(*graph, 1, 0, absl::MakeSpan(values));
  Batch batch;
  batch.examples = batch_size;
  const int64_t numbers = batch_size * NumElements(graph->input_shape()), classes = graph->output().output.back();
  batch.inputs = Buffer::Allocate(numbers * sizeof(float));
  batch.labels = Buffer::Allocate(batch_size * sizeof(float));
  uint32_t random = 1;
  for (float& v : batch.inputs.mutable_floats()) v = static_cast<float>((random = random * 1664525 + 1013904223) >> 24);
  for (int64_t i = 0; i < batch_size; ++i) batch.labels.mutable_floats()[i] = static_cast<float>(i % classes);

  std::vector<double> seconds;
  for (int s = -10; s < steps; ++s) {  // the first ones compile and capture
    const absl::Time begin = absl::Now();
    const auto sums = (*program)->TrainStep(batch, {.seed = 1, .step = static_cast<uint64_t>(s + 10), .replica = 0}, values, absl::MakeSpan(gradients),
                                            [](int64_t, int64_t) {});
    if (!sums.ok()) return Fail(sums.status());
    if (s >= 0) seconds.push_back(absl::ToDoubleSeconds(absl::Now() - begin));
  }
  const double median = Median(seconds);
  std::printf("{\"model\": \"%s\", \"batch\": %lld, \"precision\": \"%s\", \"step_ms\": %.3f, \"images_per_second\": %.1f, \"memory_bytes\": %llu}\n",
              name.c_str(), static_cast<long long>(batch_size), precision.c_str(), median * 1e3, static_cast<double>(batch_size) / median,
              static_cast<unsigned long long>((*program)->memory_bytes()));
  return 0;
}

// ---- kernels ----

using cudnn::kernels::DType;
namespace k = cudnn::kernels;

class Device {
 public:
  explicit Device(int64_t bytes) { Check(cudaMalloc(&data_, bytes)); }
  ~Device() { cudaFree(data_); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  static void Check(int error) {
    if (error == 0) return;
    std::fprintf(stderr, "gpu_bench: %s\n", cudaGetErrorString(static_cast<cudaError_t>(error)));
    std::exit(1);
  }

 private:
  void* data_ = nullptr;
};

// Median microseconds of one launch.
double Microseconds(const std::function<int()>& launch) {
  cudaEvent_t begin, end;
  Device::Check(cudaEventCreate(&begin));
  Device::Check(cudaEventCreate(&end));
  std::vector<double> times;
  for (int i = 0; i < 25; ++i) {
    Device::Check(cudaEventRecord(begin, nullptr));
    Device::Check(launch());
    Device::Check(cudaEventRecord(end, nullptr));
    Device::Check(cudaEventSynchronize(end));
    float ms = 0;
    Device::Check(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 5) times.push_back(ms * 1e3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return Median(times);
}

int Roofline() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return Fail(absl::UnavailableError("no CUDA device"));
  // The activations of a residual network at batch 256: 256 x 56 x 56 x 64 bfloat16 numbers, beyond any cache.
  const int64_t examples = 256, side = 56, channels = 64, positions = side * side, rows = examples * positions, n = rows * channels;
  const double bytes = static_cast<double>(n) * 2;
  const DType type = DType::kBFloat16;
  Device a(n * 4), b(n * 4), c(n * 4), statistics(channels * 16), key(sizeof(k::StepKey));
  Device scratch(std::max({k::BatchStatisticsScratch(rows, channels), k::ColumnSumsScratch(rows, channels), int64_t{1}}) * 4);
  // Ordinary numbers: what is timed must not be zeros.
  std::vector<uint16_t> random(n);
  uint32_t state = 1;
  for (uint16_t& v : random) v = static_cast<uint16_t>(0x3f00 | ((state = state * 1664525 + 1013904223) >> 24));
  for (Device* d : {&a, &b}) Device::Check(cudaMemcpy(d->as<void>(), random.data(), n * 2, cudaMemcpyHostToDevice));
  const std::vector<float> ones(4 * channels, 1.0f);
  Device::Check(cudaMemcpy(statistics.as<void>(), ones.data(), channels * 16, cudaMemcpyHostToDevice));
  Device::Check(cudaMemset(key.as<void>(), 1, sizeof(k::StepKey)));
  float *mean = statistics.as<float>(), *variance = mean + channels, *gamma = variance + channels, *beta = gamma + channels;
  void *x = a.as<void>(), *y = b.as<void>(), *z = c.as<void>();
  k::Window pool;
  pool.examples = examples;
  pool.in[0] = pool.in[1] = side;
  pool.in[2] = pool.out[2] = channels;
  pool.out[0] = pool.out[1] = side / 2;
  pool.kernel[0] = pool.kernel[1] = 3;
  pool.strides[0] = pool.strides[1] = 2;
  pool.pad[0] = pool.pad[1] = 1;
  k::Window depthwise = pool;
  depthwise.out[0] = depthwise.out[1] = side;
  depthwise.strides[0] = depthwise.strides[1] = 1;

  const double ceiling = 2 * bytes / Microseconds([&] { return cudaMemcpyAsync(z, x, n * 2, cudaMemcpyDeviceToDevice, nullptr); }) * 1e-3;
  std::printf("%-34s %8.0f GB/s\n", "copy within the device", ceiling);
  const auto row = [&](const char* what, double moved, const std::function<int()>& launch) {
    const double us = Microseconds(launch), rate = moved / us * 1e-3;
    std::printf("%-34s %8.0f GB/s  %4.0f %% of a copy  %8.1f us\n", what, rate, 100 * rate / ceiling, us);
  };
  row("bias and relu", 2 * bytes, [&] { return k::BiasActivation(nullptr, k::Act::kRelu, 0, rows, channels, x, gamma, z, type); });
  row("gelu", 2 * bytes, [&] { return k::BiasActivation(nullptr, k::Act::kGelu, 0, 1, n, x, nullptr, z, type); });
  row("relu backward", 3 * bytes, [&] { return k::ActivationBackward(nullptr, k::Act::kRelu, 0, n, nullptr, x, y, z, type, false); });
  row("batch statistics", bytes, [&] { return k::BatchStatistics(nullptr, rows, channels, x, mean, variance, scratch.as<float>(), type); });
  row("batch normalization + add + relu", 3 * bytes, [&] {
    return k::BatchNormalization(nullptr, rows, channels, x, y, mean, variance, 1e-3f, gamma, beta, true, z, type);
  });
  row("batch normalization's sums", 3 * bytes, [&] {
    return k::BatchNormalizationSums(nullptr, rows, channels, x, y, x, mean, variance, 1e-3f, gamma, beta, scratch.as<float>(), type);
  });
  row("batch normalization backward", 4 * bytes, [&] {
    return k::BatchNormalizationBackward(nullptr, rows, channels, x, y, x, mean, variance, 1e-3f, gamma, gamma, beta, false, z, false, nullptr, false,
                                         type);
  });
  row("bias gradient", bytes, [&] { return k::ColumnSums(nullptr, rows, channels, x, mean, scratch.as<float>(), type); });
  row("max pooling 3x3 / 2", 1.25 * bytes, [&] { return k::MaxPooling(nullptr, pool, x, z, nullptr, type); });
  row("depthwise 3x3", 2 * bytes, [&] { return k::Depthwise(nullptr, depthwise, x, y, z, type); });
  row("layer normalization", 2 * bytes, [&] {
    return k::GroupNormalization(nullptr, n / 1024, 1, 1024, 1, 1e-3f, x, nullptr, nullptr, z, b.as<float>(), b.as<float>() + n / 1024, type);
  });
  row("softmax of 1024", 2 * bytes, [&] { return k::Softmax(nullptr, n / 1024, 1024, 0, x, z, type); });
  row("dropout", 2 * bytes, [&] { return k::Dropout(nullptr, n, key.as<k::StepKey>(), 1, 0.1f, x, z, type, false); });
  row("sum of two", 3 * bytes, [&] {
    k::Inputs in;
    in.count = 2;
    in.x[0] = x;
    in.x[1] = y;
    return k::Sum(nullptr, n, in, 1, z, type);
  });
  row("float32 to bfloat16", 3 * bytes, [&] { return k::Affine(nullptr, n, 1, 0, x, DType::kFloat32, z, type, false); });
  row("transpose", 2 * bytes, [&] { return k::Transpose(nullptr, n / 4096, 4096, x, type, z, type); });
  return 0;
}

int Main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "roofline") return Roofline();
  if (what == "step" && argc >= 5) return Step(argv[2], std::atoll(argv[3]), argv[4], argc > 5 ? std::atoi(argv[5]) : 50);
  std::fprintf(stderr, "usage: gpu_bench step MODEL BATCH float32|tf32|bfloat16 [STEPS] | gpu_bench roofline\n");
  return 2;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
