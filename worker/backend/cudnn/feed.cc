#include "worker/backend/cudnn/feed.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/random.h"
#include "common/tensor/dtype.h"
#include "worker/backend/cudnn/ids.h"

namespace cairn::cudnn {
namespace {

// The size of one copy of values: small enough that the next chunk is copied to pinned memory while this one travels.
constexpr int64_t kChunkNumbers = 1 << 20;

DType TypeOf(v1::DataType type) { return type == v1::BFLOAT16 ? DType::kBFloat16 : DType::kFloat16; }

}  // namespace

absl::Status Pair::Allocate(Machine& machine, int64_t bytes) {
  CAIRN_ASSIGN_OR_RETURN(Block on_device, machine.Allocate(bytes));
  CAIRN_ASSIGN_OR_RETURN(pinned, machine.AllocatePinned(bytes));
  device = std::move(on_device);
  return absl::OkStatus();
}

Feed::Feed(const Graph& graph, Machine& machine)
    : graph_(graph), machine_(machine), widens_(!IdReadersOf(graph).empty()) {}

absl::Status Feed::Prepare(int64_t examples_max, int64_t labels, const std::vector<float>& class_weights,
                           Element inputs) {
  examples_max_ = examples_max;
  CAIRN_RETURN_IF_ERROR(values_.Allocate(machine_, graph_.space_size() * 4));
  CAIRN_RETURN_IF_ERROR(inputs_[static_cast<int>(inputs)].Allocate(machine_, InputBytes(inputs)));
  CAIRN_RETURN_IF_ERROR(AllocateLabels(examples_max * labels));
  CAIRN_RETURN_IF_ERROR(key_.Allocate(machine_, sizeof(kernels::StepKey)));
  CAIRN_RETURN_IF_ERROR(
      class_weights_.Allocate(machine_, std::max<int64_t>(static_cast<int64_t>(class_weights.size()), 1) * 4));
  std::copy(class_weights.begin(), class_weights.end(), class_weights_.pinned.as<float>());
  return machine_.CopyIn(class_weights_.device.data(), class_weights_.pinned.data(), class_weights_.pinned.bytes());
}

int64_t Feed::bytes() const {
  int64_t bytes = value_bits_.bytes();
  for (const Pair* pair : {&values_, &inputs_[0], &inputs_[1], &next_[0], &next_[1], &labels_, &key_, &class_weights_})
    bytes += pair->device.bytes();
  return bytes;
}

// As numbers of the type OnDevice.
void Feed::ToPinned(const Batch& batch, char* pinned) const {
  if (OnDevice(batch) == batch.element) {
    std::memcpy(pinned, batch.inputs.data(), batch.inputs.size());
  } else {
    BytesToFloats(batch.inputs.data(), batch.input_numbers(), reinterpret_cast<float*>(pinned));
  }
}

void Feed::Prefetch(const Batch& next) {
  const Element element = OnDevice(next);
  const int64_t bytes = next.input_numbers() * cairn::SizeOf(element);
  if (bytes == 0 || bytes > InputBytes(element) || next.inputs.data() == next_inputs_.data()) return;
  Pair& to = next_[static_cast<int>(element)];
  if (to.device.bytes() == 0) {
    if (prefetch_refused_) return;
    if (const absl::Status status = to.Allocate(machine_, InputBytes(element)); !status.ok()) {
      prefetch_refused_ = true;
      return LogInfo("no memory to prefetch the next batch to the GPU: %s", status.message());
    }
  }
  // Nothing reads the previous batch any more: its step began with a copy of it, which is done.
  ToPinned(next, to.pinned.data());
  next_inputs_ = machine_.CopyIn(to.device.data(), to.pinned.data(), bytes).ok() ? next.inputs : Buffer();
}

absl::Status Feed::CopyBatch(Mode mode, const Batch& batch, absl::Span<const float> row_weights, const StepInfo& info) {
  const Element element = OnDevice(batch);
  const int64_t bytes = batch.input_numbers() * cairn::SizeOf(element);
  Pair& to = inputs_[static_cast<int>(element)];
  if (to.device.bytes() == 0) CAIRN_RETURN_IF_ERROR(to.Allocate(machine_, InputBytes(element)));
  if (batch.inputs.data() == next_inputs_.data() && batch.inputs.size() == next_inputs_.size()) {
    CAIRN_RETURN_IF_ERROR(machine_.JoinCopiesIn());
    CAIRN_RETURN_IF_ERROR(machine_.Copy(to.device.data(), next_[static_cast<int>(element)].device.data(), bytes));
  } else {
    ToPinned(batch, to.pinned.data());
    CAIRN_RETURN_IF_ERROR(machine_.CopyIn(to.device.data(), to.pinned.data(), bytes));
  }
  next_inputs_ = Buffer();
  if (mode == Mode::kPredict) return absl::OkStatus();
  const int64_t labels = batch.examples * batch.label_size * 4;
  std::memcpy(labels_.pinned.data(), batch.labels.data(), labels);
  std::copy(row_weights.begin(), row_weights.end(), labels_.pinned.as<float>() + batch.examples * batch.label_size);
  const int64_t weights = static_cast<int64_t>(row_weights.size()) * 4;
  CAIRN_RETURN_IF_ERROR(machine_.CopyIn(labels_.device.data(), labels_.pinned.data(), labels + weights));
  if (mode != Mode::kTrain) return absl::OkStatus();
  const auto key = StreamKey(info.seed, RandomStream::kDropout);
  *key_.pinned.as<kernels::StepKey>() = {{key[0], key[1]},
                                         {static_cast<uint32_t>(info.step), static_cast<uint32_t>(info.step >> 32)},
                                         info.replica,
                                         info.loss_scale,
                                         {static_cast<uint32_t>(info.seed), static_cast<uint32_t>(info.seed >> 32)}};
  return machine_.CopyIn(key_.device.data(), key_.pinned.data(), sizeof(kernels::StepKey));
}

// Chunk by chunk: one travels while the next is copied to pinned memory (and, with a source, waited for).
absl::Status Feed::CopyValues(absl::Span<const float> values, v1::DataType type, int64_t from, int64_t to,
                              int64_t wanted_end) {
  if (type != v1::FLOAT32 && value_bits_.bytes() == 0) {
    CAIRN_ASSIGN_OR_RETURN(value_bits_, machine_.Allocate(graph_.space_size() * 2));
  }
  for (int64_t begin = from; begin < to; begin += kChunkNumbers) {
    const int64_t end = std::min(begin + kChunkNumbers, to);
    if (source_ != nullptr) {
      CAIRN_RETURN_IF_ERROR(source_->Acquire(begin, end));
      if (end < wanted_end) source_->Prefetch(end, std::min(end + kChunkNumbers, wanted_end));
    }
    const auto element = static_cast<int64_t>(cairn::SizeOf(type)), bytes = (end - begin) * element;
    char* const pinned = values_.pinned.data() + begin * element;
    FromFloat(values.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), type,
              {reinterpret_cast<uint8_t*>(pinned), static_cast<size_t>(bytes)});
    if (source_ != nullptr) source_->Release(begin, end);
    char* const device = type == v1::FLOAT32 ? values_.device.data() : value_bits_.data();
    CAIRN_RETURN_IF_ERROR(machine_.CopyIn(device + begin * element, pinned, bytes));
  }
  CAIRN_RETURN_IF_ERROR(machine_.JoinCopiesIn());
  return type == v1::FLOAT32 ? absl::OkStatus() : Widen(type, from, to);
}

// Converts the values [from, to), which came as numbers of 16 bits.
absl::Status Feed::Widen(v1::DataType type, int64_t from, int64_t to) {
  if (from >= to) return absl::OkStatus();
  const kernels::Error error = kernels::Affine(machine_.stream(), to - from, 1, 0, value_bits_.data() + from * 2,
                                               TypeOf(type), values_.device.as<float>() + from, DType::kFloat32, false);
  return error == 0 ? absl::OkStatus() : absl::InternalError(absl::StrCat("values of 16 bits: CUDA error ", error));
}

}  // namespace cairn::cudnn
