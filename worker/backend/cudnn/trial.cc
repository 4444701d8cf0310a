#include "worker/backend/cudnn/trial.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"

namespace cairn::cudnn {
namespace {

// All inputs are 1, so that a result is the number of products that were added: exact in every precision, unless an
// engine transforms its inputs first.
constexpr float kTolerance = 0.02f;
constexpr int64_t kSide = 16;
constexpr Product kProduct{.m = kSide, .n = kSide, .k = kSide};
constexpr float kProductResult = kSide;
constexpr int64_t kImageSide = 6, kChannels = 8;
const Convolution kConvolution{Convolution::kForward,
                               {.examples = 1,
                                .in = {kImageSide, kImageSide, kChannels},
                                .out = {kImageSide, kImageSide, kChannels},
                                .kernel = {3, 3},
                                .pad = {1, 1}}};
constexpr int64_t kProducts = kSide * kSide, kPixels = kImageSide * kImageSide * kChannels,
                  kWeights = kChannels * 9 * kChannels;
constexpr int64_t kOnes = std::max({kProducts, kPixels, kWeights});

// Of the window around a pixel, 2 or 3 rows and columns lie within the picture.
float ConvolutionResult(int64_t pixel) {
  const auto inside = [](int64_t place) { return place == 0 || place + 1 == kImageSide ? 2 : 3; };
  return static_cast<float>(inside(pixel / kImageSide) * inside(pixel % kImageSide) * kChannels);
}

absl::Status Launched(kernels::Error error) {
  return error == 0 ? absl::OkStatus() : absl::InternalError(absl::StrCat("a conversion: CUDA error ", error));
}

absl::Status CheckResults(const float* results, const char* how) {
  for (int64_t i = 0; i < kProducts + kPixels; ++i) {
    const bool product = i < kProducts;
    const float right = product ? kProductResult : ConvolutionResult((i - kProducts) / kChannels);
    if (!(std::abs(results[i] - right) <= kTolerance * right)) {
      return absl::InternalError(absl::StrCat("a trial", how, ": number ", product ? i : i - kProducts, " of a ",
                                              product ? "product" : "convolution", " of ones is ", results[i], ", not ",
                                              right));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status TryMachine(Machine& machine, const Precision& precision, absl::Duration patience) {
  const DType type = precision.type;
  CAIRN_ASSIGN_OR_RETURN(const int64_t of_product, machine.Prepare(kProduct));
  CAIRN_ASSIGN_OR_RETURN(const int64_t of_convolution, machine.Prepare(kConvolution));
  CAIRN_ASSIGN_OR_RETURN(const Block ones, machine.Allocate(kOnes * SizeOf(type)));
  CAIRN_ASSIGN_OR_RETURN(const Block pixels, machine.Allocate(kPixels * SizeOf(type)));
  CAIRN_ASSIGN_OR_RETURN(const Block results, machine.Allocate((kProducts + kPixels) * 4));
  CAIRN_ASSIGN_OR_RETURN(const Block workspace, machine.Allocate(std::max({of_product, of_convolution, int64_t{1}})));
  CAIRN_ASSIGN_OR_RETURN(const Block pinned, machine.AllocatePinned(results.bytes()));
  const auto enqueue = [&]() -> absl::Status {
    CAIRN_RETURN_IF_ERROR(machine.Zero(ones.data(), ones.bytes()));
    CAIRN_RETURN_IF_ERROR(
        Launched(kernels::Affine(machine.stream(), kOnes, 1, 1, ones.data(), type, ones.data(), type, false)));
    CAIRN_RETURN_IF_ERROR(
        machine.Multiply(kProduct, ones.data(), ones.data(), nullptr, results.data(), workspace.data()));
    CAIRN_RETURN_IF_ERROR(
        machine.Convolve(kConvolution, ones.data(), ones.data(), nullptr, pixels.data(), workspace.data()));
    CAIRN_RETURN_IF_ERROR(Launched(kernels::Affine(machine.stream(), kPixels, 1, 0, pixels.data(), type,
                                                   results.as<float>() + kProducts, DType::kFloat32, false)));
    CAIRN_RETURN_IF_ERROR(machine.CopyOut(pinned.data(), results.data(), results.bytes(), 0));
    return machine.JoinCopiesOut();
  };
  const auto run = [&](const char* how, const std::function<absl::Status()>& launch) -> absl::Status {
    std::fill_n(pinned.as<float>(), kProducts + kPixels, -1.0f);
    machine.ResetSignals(1);
    CAIRN_RETURN_IF_ERROR(launch());
    CAIRN_RETURN_IF_ERROR(machine.health().Note(machine.WaitFor(0, patience)));  // before anything of it goes
    return CheckResults(pinned.as<float>(), how);
  };
  CAIRN_RETURN_IF_ERROR(run("", enqueue));
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<Recording> recording, machine.Record(enqueue));
  return run(", recorded", [&] { return machine.Launch(*recording); });
}

}  // namespace cairn::cudnn
