// How near a GPU's ceilings its work comes, by class: bytes/s of kernels beside a copy within the device, FLOP/s of
// ResNet-50's convolutions beside a large product. bfloat16; batch 256.
//
//   gpu_roofline
//
// Exit 77 with the reason where there is no device.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "worker/backend/cudnn/cuda_machine.h"
#include "worker/backend/cudnn/kernels/kernels.h"

namespace cairn {
namespace {

double Median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + x.size() / 2, x.end());
  return x[x.size() / 2];
}

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
    std::fprintf(stderr, "gpu_roofline: %s\n", cudaGetErrorString(static_cast<cudaError_t>(error)));
    std::exit(1);
  }

 private:
  void* data_ = nullptr;
};

// Median microseconds of one launch.
double Microseconds(const std::function<int()>& launch, cudaStream_t stream = nullptr) {
  cudaEvent_t begin, end;
  Device::Check(cudaEventCreate(&begin));
  Device::Check(cudaEventCreate(&end));
  std::vector<double> times;
  for (int i = 0; i < 25; ++i) {
    Device::Check(cudaEventRecord(begin, stream));
    Device::Check(launch());
    Device::Check(cudaEventRecord(end, stream));
    Device::Check(cudaEventSynchronize(end));
    float ms = 0;
    Device::Check(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 5) times.push_back(ms * 1e3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return Median(times);
}

void Kernels() {
  // The activations of a residual network at batch 256: 256 x 56 x 56 x 64 bfloat16 numbers, beyond any cache.
  const int64_t examples = 256, side = 56, channels = 64, positions = side * side, rows = examples * positions,
                n = rows * channels;
  const double bytes = static_cast<double>(n) * 2;
  const DType type = DType::kBFloat16;
  Device a(n * 4), b(n * 4), c(n * 4), statistics(channels * 16), key(sizeof(k::StepKey));
  Device scratch(
      std::max({k::BatchStatisticsScratch(rows, channels), k::ColumnSumsScratch(rows, channels), int64_t{1}}) * 4);
  // Ordinary numbers: zeros would distort the times.
  std::vector<uint16_t> random(n);
  uint32_t state = 1;
  for (uint16_t& v : random) v = static_cast<uint16_t>(0x3f00 | ((state = state * 1664525 + 1013904223) >> 24));
  for (Device* d : {&a, &b}) Device::Check(cudaMemcpy(d->as<void>(), random.data(), n * 2, cudaMemcpyHostToDevice));
  const std::vector<float> ones(4 * channels, 1.0f);
  Device::Check(cudaMemcpy(statistics.as<void>(), ones.data(), channels * 16, cudaMemcpyHostToDevice));
  Device::Check(cudaMemset(key.as<void>(), 1, sizeof(k::StepKey)));
  float *mean = statistics.as<float>(), *variance = mean + channels, *gamma = variance + channels,
        *beta = gamma + channels;
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

  const double ceiling =
      2 * bytes / Microseconds([&] { return cudaMemcpyAsync(z, x, n * 2, cudaMemcpyDeviceToDevice, nullptr); }) * 1e-3;
  std::printf("%-34s %8.0f GB/s\n", "copy within the device", ceiling);
  const auto row = [&](const char* what, double moved, const std::function<int()>& launch) {
    const double us = Microseconds(launch), rate = moved / us * 1e-3;
    std::printf("%-34s %8.0f GB/s  %4.0f %% of a copy  %8.1f us\n", what, rate, 100 * rate / ceiling, us);
  };
  row("bias and relu", 2 * bytes,
      [&] { return k::BiasActivation(nullptr, k::Act::kRelu, 0, rows, channels, x, gamma, z, type); });
  row("gelu", 2 * bytes, [&] { return k::BiasActivation(nullptr, k::Act::kGelu, 0, 1, n, x, nullptr, z, type); });
  row("relu backward", 3 * bytes,
      [&] { return k::ActivationBackward(nullptr, k::Act::kRelu, 0, n, nullptr, x, y, z, type, false); });
  const k::Normalized of_x{x, mean, variance, gamma, beta, 1e-3f};
  Device bits(k::PassedBytes(rows, channels));
  auto* const passed = bits.as<uint8_t>();
  row("batch statistics", bytes,
      [&] { return k::BatchStatistics(nullptr, rows, channels, x, mean, variance, {}, scratch.as<float>(), type); });
  row("batch normalization + relu", 2 * bytes,
      [&] { return k::BatchNormalization(nullptr, rows, channels, of_x, {}, nullptr, true, z, nullptr, type); });
  row("batch normalization + add + relu", 3.0625 * bytes,
      [&] { return k::BatchNormalization(nullptr, rows, channels, of_x, {}, y, true, z, passed, type); });
  row("batch normalization's sums", 2 * bytes, [&] {
    return k::BatchNormalizationSums(nullptr, rows, channels, of_x, {}, true, nullptr, y, {gamma, beta}, {},
                                     scratch.as<float>(), type);
  });
  row("batch normalization backward", 3 * bytes, [&] {
    return k::BatchNormalizationBackward(nullptr, rows, channels, of_x, {}, true, nullptr, y, {gamma, beta, z}, {},
                                         false, nullptr, false, type);
  });
  row("bias gradient", bytes,
      [&] { return k::ColumnSums(nullptr, rows, channels, x, mean, scratch.as<float>(), type); });
  row("max pooling 3x3 / 2", 1.25 * bytes, [&] { return k::MaxPooling(nullptr, pool, false, x, z, nullptr, type); });
  row("depthwise 3x3", 2 * bytes, [&] { return k::Depthwise(nullptr, depthwise, x, y, z, type); });
  row("layer normalization", 2 * bytes, [&] {
    return k::GroupNormalization(nullptr, n / 1024, 1, 1024, 1, 1e-3f, x, nullptr, nullptr, z, b.as<float>(),
                                 b.as<float>() + n / 1024, type);
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
  row("float32 to bfloat16", 3 * bytes,
      [&] { return k::Affine(nullptr, n, 1, 0, x, DType::kFloat32, z, type, false); });
  row("transpose", 2 * bytes, [&] { return k::Transpose(nullptr, n / 4096, 4096, x, type, z, type); });
}

// ---- products and convolutions ----

template <class T>
T Must(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "gpu_roofline: %s\n", std::string(value.status().message()).c_str());
  std::exit(1);
}
int Must(const absl::Status& status) {
  if (!status.ok()) Must(absl::StatusOr<int>(status));
  return 0;
}

void Products(cudnn::Machine& machine) {
  const int64_t side = 8192;
  // Large enough for every operand below.
  const int64_t bytes = int64_t{256} * 112 * 112 * 64 * 2;
  cudnn::Block a = Must(machine.Allocate(bytes)), b = Must(machine.Allocate(bytes)), c = Must(machine.Allocate(bytes));
  std::vector<uint16_t> random(bytes / 2);
  uint32_t state = 1;
  for (uint16_t& v : random) {  // 2^-7 to 2^-5, of both signs
    state = state * 1664525 + 1013904223;
    v = static_cast<uint16_t>((state >> 16 & 0x8000) | 0x3c00 | (state >> 16 & 0xff));
  }
  for (cudnn::Block* block : {&a, &b})
    Device::Check(cudaMemcpy(block->data(), random.data(), bytes, cudaMemcpyHostToDevice));

  cudnn::Product product;
  product.m = product.n = product.k = side;
  product.out = DType::kBFloat16;
  cudnn::Block workspace = Must(machine.Allocate(std::max<int64_t>(Must(machine.Prepare(product)), 1)));
  const double flops = 2.0 * side * side * side;
  const double ceiling =
      flops /
      Microseconds(
          [&] { return Must(machine.Multiply(product, a.data(), b.data(), nullptr, c.data(), workspace.data())); },
          machine.stream()) *
      1e-6;
  std::printf("%-34s %8.1f TFLOP/s\n", "product of 8192 x 8192", ceiling);

  struct Layer {
    const char* name;
    int64_t side, in, out, kernel, stride;
  };
  for (const Layer& layer :
       {Layer{"7x7/2 3->64 on 224", 224, 3, 64, 7, 2}, Layer{"1x1 64->256 on 56", 56, 64, 256, 1, 1},
        Layer{"3x3 64->64 on 56", 56, 64, 64, 3, 1}, Layer{"3x3 128->128 on 28", 28, 128, 128, 3, 1},
        Layer{"3x3 256->256 on 14", 14, 256, 256, 3, 1}, Layer{"1x1 1024->256 on 14", 14, 1024, 256, 1, 1},
        Layer{"3x3 512->512 on 7", 7, 512, 512, 3, 1}}) {
    cudnn::Convolution convolution;
    k::Window& w = convolution.window;
    w.examples = 256;
    w.in[2] = layer.in;
    w.out[2] = layer.out;
    for (int d = 0; d < 2; ++d) {
      w.in[d] = layer.side;
      w.out[d] = layer.side / layer.stride;
      w.kernel[d] = layer.kernel;
      w.strides[d] = layer.stride;
      w.pad[d] = layer.kernel / 2;
    }
    const double work =
        2.0 * 256 * static_cast<double>(w.out[0] * w.out[1] * layer.out * layer.kernel * layer.kernel * layer.in);
    std::printf("%-34s", layer.name);
    for (auto kind :
         {cudnn::Convolution::kForward, cudnn::Convolution::kBackwardData, cudnn::Convolution::kBackwardFilter}) {
      convolution.kind = kind;
      const absl::StatusOr<int64_t> needed = machine.Prepare(convolution);
      if (!needed.ok()) {
        std::printf("        none    ");
        continue;
      }
      cudnn::Block space = Must(machine.Allocate(std::max<int64_t>(*needed, 1)));
      const double rate =
          work /
          Microseconds(
              [&] { return Must(machine.Convolve(convolution, a.data(), b.data(), nullptr, c.data(), space.data())); },
              machine.stream()) *
          1e-6;
      std::printf(" %8.1f (%2.0f %%)", rate, 100 * rate / ceiling);
    }
    std::printf("   TFLOP/s forward, data, filter\n");
  }
}

int Main() {
  const absl::StatusOr<cudnn::DeviceInfo> device = cudnn::FindDevice(0);
  if (!device.ok()) {
    std::fprintf(stderr, "gpu_roofline: %s\n", std::string(device.status().message()).c_str());
    return 77;
  }
  std::printf("%s\n", device->name.c_str());
  Kernels();
  Products(*Must(cudnn::MakeCudaMachine(*device, {.type = DType::kBFloat16}, nullptr)));
  return 0;
}

}  // namespace
}  // namespace cairn

int main() { return cairn::Main(); }
