#include "tests/unit/backend/cudnn_host_machine.h"

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/backend/cudnn/kernels/numbers.h"

namespace cairn::cudnn {
namespace {

constexpr int64_t kGuard = 256;  // bytes before and behind
constexpr uint8_t kGuardByte = 0xa5;

class HostRecording : public Recording {
 public:
  explicit HostRecording(std::function<absl::Status()> enqueue) : enqueue(std::move(enqueue)) {}
  const std::function<absl::Status()> enqueue;
};

}  // namespace

absl::StatusOr<Block> HostMachine::Allocate(int64_t bytes) {
  const int64_t whole = (bytes + kGuard - 1) / kGuard * kGuard;
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(kGuard, whole + 2 * kGuard));
  CAIRN_CHECK(memory != nullptr, "memory for a test");
  std::memset(memory, kGuardByte, whole + 2 * kGuard);
  std::memset(memory + kGuard, 0xff, bytes);
  return Block(memory + kGuard, bytes, [memory, bytes, whole](void*) {
    for (int64_t i = 0; i < kGuard; ++i) CAIRN_CHECK(memory[i] == kGuardByte, "written before its begin");
    for (int64_t i = bytes; i < whole + kGuard; ++i)
      CAIRN_CHECK(memory[kGuard + i] == kGuardByte, "written behind its end");
    std::free(memory);
  });
}

absl::StatusOr<Block> HostMachine::AllocatePinned(int64_t bytes) {
  if (refuses_pinned_) return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes of pinned memory"));
  return Allocate(bytes);
}

void HostMachine::Do(std::vector<LateCopy>* copies, std::vector<bool>* arrived) {
  for (const LateCopy& c : *copies) {
    if (c.bytes > 0) std::memcpy(c.to, c.from, c.bytes);
    if (c.signal < 0) continue;
    CAIRN_CHECK(!arrived->at(c.signal), "each signal is given once");
    arrived->at(c.signal) = true;
  }
  copies->clear();
}

absl::Status HostMachine::CopyIn(void* to, const void* pinned, int64_t bytes) {
  late_in_.push_back({to, pinned, bytes, -1});
  if (copies_ == Copies::kEarly) Do(&late_in_, nullptr);
  return absl::OkStatus();
}

absl::Status HostMachine::JoinCopiesIn() {
  Do(&late_in_, nullptr);
  return absl::OkStatus();
}

absl::Status HostMachine::Zero(void* to, int64_t bytes) {
  std::memset(to, 0, bytes);
  return absl::OkStatus();
}

absl::Status HostMachine::Copy(void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status HostMachine::CopyOut(void* pinned, const void* from, int64_t bytes, int signal) {
  late_out_.push_back({pinned, from, bytes, signal});
  if (copies_ == Copies::kEarly) Do(&late_out_, &arrived_);
  return absl::OkStatus();
}

absl::Status HostMachine::JoinCopiesOut() {
  Do(&late_out_, &arrived_);
  return absl::OkStatus();
}

// In the order of what is done aside, which is done at once.
absl::Status HostMachine::CopyPeer(void* to, const void* from, int from_device, int64_t bytes) {
  CAIRN_CHECK(from_device != device_, "a copy on one device");
  ++peer_copies_;
  aside_under_way_ = true;
  std::memcpy(to, from, bytes);
  return absl::OkStatus();
}

absl::Status HostMachine::CopyOutAside(void* pinned, const void* from, int64_t bytes) {
  late_aside_.push_back({pinned, from, bytes, -1});
  aside_under_way_ = true;
  return absl::OkStatus();
}

absl::Status HostMachine::WaitAside(absl::Duration) {
  Do(&late_aside_, nullptr);
  aside_under_way_ = false;
  return absl::OkStatus();
}

absl::Status HostMachine::WaitForAll(absl::Duration) {
  Do(&late_aside_, nullptr);
  Do(&late_in_, nullptr);
  Do(&late_out_, &arrived_);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Recording>> HostMachine::Record(const std::function<absl::Status()>& enqueue) {
  ++recorded_;
  return std::make_unique<HostRecording>(enqueue);
}

absl::Status HostMachine::Launch(Recording& recording) {
  ++launches_;
  return static_cast<HostRecording&>(recording).enqueue();
}

absl::Status HostMachine::WaitFor(int signal, absl::Duration) {
  if (arrived_.at(signal)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("signal ", signal, " is never given"));
}

absl::StatusOr<int64_t> HostMachine::Prepare(const Product& product) {
  if (products_.contains(product)) return 0;
  products_[product] = tuner_ == nullptr ? 0
                                         : tuner_->Choose(absl::StrCat("product ", ToString(product)),
                                                          {"forward", "backward"}, microseconds_);
  return 0;
}

absl::StatusOr<int64_t> HostMachine::Prepare(const Convolution& convolution) {
  if ((convolution.bias || convolution.relu) && convolution.window.examples == 1)
    return absl::UnimplementedError("one example");
  convolutions_.insert(convolution);
  return 0;
}

absl::Status HostMachine::Multiply(const Product& p, const void* a, const void* b, const void* bias, void* c, void*) {
  const auto prepared = products_.find(p);
  CAIRN_CHECK(prepared != products_.end(), "Prepare was told of it");
  const kernels::In x{a, precision_.type}, y{b, precision_.type}, offsets{bias, precision_.type};
  const kernels::Out z{c, p.out};
  for (int64_t i = 0; i < p.batch; ++i) {
    for (int64_t r = 0; r < p.m; ++r) {
      for (int64_t s = 0; s < p.n; ++s) {
        float sum = 0;
        for (int64_t turn = 0; turn < p.k; ++turn) {
          const int64_t k = prepared->second == 0 ? turn : p.k - 1 - turn;
          const int64_t ia = i * p.m * p.k + (p.transpose_a ? k * p.m + r : r * p.k + k);
          const int64_t ib = i * p.k * p.n + (p.transpose_b ? s * p.k + k : k * p.n + s);
          sum += kernels::At(x, ia) * kernels::At(y, ib);
        }
        const int64_t at = (i * p.m + r) * p.n + s;
        float value = p.alpha * sum;
        if (p.beta != 0) value += p.beta * kernels::At({c, p.out}, at);
        if (p.bias) value += kernels::At(offsets, s);
        if (p.relu && !(value > 0)) value = 0;
        kernels::Set(z, at, value);
      }
    }
  }
  return absl::OkStatus();
}

void HostMachine::Epilogue(const Convolution& c, const void* bias, void* to) const {
  const kernels::Window& w = c.window;
  const kernels::In offsets{bias, precision_.type};
  for (int64_t i = 0; i < w.examples * w.depth.out * w.out[0] * w.out[1] * w.out[2]; ++i) {
    const float value = kernels::At({to, precision_.type}, i) + (c.bias ? kernels::At(offsets, i % w.out[2]) : 0.0f);
    kernels::Set({to, precision_.type}, i, c.relu && !(value > 0) ? 0.0f : value);
  }
}

absl::Status HostMachine::Convolve(const Convolution& c, const void* first, const void* second, const void* bias,
                                   void* to, void*) {
  CAIRN_CHECK(convolutions_.contains(c), "Prepare was told of it");
  kernels::Error error = 0;
  switch (c.kind) {
    case Convolution::kForward:
      error = kernels::Convolution(nullptr, c.window, first, second, to, precision_.type);
      if (c.bias || c.relu) Epilogue(c, bias, to);
      break;
    case Convolution::kBackwardData:
      error = kernels::ConvolutionBackwardData(nullptr, c.window, first, second, to, precision_.type, false);
      break;
    case Convolution::kBackwardFilter:
      error = kernels::ConvolutionBackwardFilter(nullptr, c.window, first, second, static_cast<float*>(to),
                                                 precision_.type);
      break;
  }
  if (error == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("kernel error ", error));
}

}  // namespace cairn::cudnn
