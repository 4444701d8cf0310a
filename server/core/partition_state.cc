#include "server/core/partition_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/limits.h"

namespace cairn {
namespace {
constexpr uint64_t kEntryOverheadBytes = 128;  // key, header, the store's own: so that empty entries count too
}

std::string PartitionConfig::Name() const { return absl::StrCat("job ", job.value, " partition ", partition.value); }

PartitionState PartitionState::Initial(const PartitionConfig& config) {
  PartitionState s;
  const size_t bytes = static_cast<size_t>(config.size()) * sizeof(float);
  s.values = Buffer::Zeros(bytes);
  config.initialize(s.values.mutable_floats());
  for (int i = 0; i < config.optimizer.slots(); ++i) {
    Buffer slot = Buffer::Allocate(bytes);
    std::fill_n(slot.mutable_floats().begin(), config.size(), config.optimizer.initial_slot_value(i));
    s.slots.push_back(std::move(slot));
  }
  s.sequences.assign(config.replicas, 0);
  if (config.loss_scale) s.loss_scale = LossScale::Initial(*config.loss_scale);
  s.previous_loss_scale = s.loss_scale.scale;
  return s;
}

absl::Status CheckEntry(const PartitionConfig& config, uint64_t version, absl::Span<const uint64_t> sequences,
                        const v1::LogEntry& entry, size_t gradient_bytes) {
  const auto bad = [&](auto... what) {
    return absl::DataLossError(absl::StrCat(config.Name(), ": log entry ", entry.version(), ": ", what...));
  };
  if (entry.version() != version + 1) return bad("it does not follow version ", version);
  const size_t bytes = entry.examples() == 0 ? 0 : config.GradientBytes(DtypeOf(entry));
  if (entry.examples() > 0 && bytes == 0) {
    return bad("its gradient is of type ", entry.dtype(),
               ", which is not known; a newer cairn-ps wrote it, use that one");
  }
  if (gradient_bytes != bytes) {
    return bad("its gradient has ", gradient_bytes, " bytes, expected ", bytes,
               ": it is damaged, or a cairn-ps of another version wrote it");
  }
  if (entry.norms().size() > kFrameScalarsBytesMax) return bad("norms: ", entry.norms().size(), " bytes");
  if (entry.ema_overwrite() && !config.optimizer.ema) return bad("ema_overwrite, but the job keeps no moving average");
  if (config.loss_scale ? !IsLossScale(entry.loss_scale()) : entry.loss_scale() != 0 || entry.not_finite()) {
    return bad("loss_scale ", entry.loss_scale(),
               config.loss_scale ? ", of a job that has one" : ", of a job that has none");
  }
  if (entry.not_finite() && entry.examples() != 0)
    return bad("it is left out, and has ", entry.examples(), " examples");
  if (entry.has_figures()) {
    if (!config.keeps_figures()) return bad("figures, but these are kept by the job's first partition");
    if (const absl::Status status = CheckFigures(entry.figures(), config.metrics); !status.ok())
      return bad(status.message());
  }
  if (config.mode == UpdateMode::kSynchronous) {
    if (entry.replica_first() != 0 || entry.replica_count() != config.replicas || entry.sequence() != entry.version()) {
      return bad("it is not a synchronous update of ", config.replicas, " replicas");
    }
    return absl::OkStatus();
  }
  if (entry.replica_count() != 1 || entry.replica_first() >= config.replicas) return bad("it is not of one replica");
  if (entry.sequence() != sequences[entry.replica_first()] + 1) {
    return bad("update ", entry.sequence(), " of replica ", entry.replica_first(), " follows update ",
               sequences[entry.replica_first()]);
  }
  return absl::OkStatus();
}

Buffer PackGradient(const PartitionConfig& config, const v1::LogEntry& entry, const Buffer& gradient) {
  const v1::DataType dtype = DtypeOf(entry);
  if (dtype == v1::FLOAT32 || gradient.empty()) return gradient;
  Buffer packed = Buffer::Allocate(config.GradientBytes(dtype));
  PackRounded(config.RoundingOf(entry.sequence()).As(dtype), {entry.replica_first(), entry.replica_count()},
              gradient.floats(), {packed.mutable_data(), packed.size()});
  return packed;
}

Buffer UnpackGradient(const PartitionConfig& config, const v1::LogEntry& entry, absl::Span<const uint8_t> bytes) {
  if (bytes.empty()) return {};
  Buffer gradient = Buffer::Allocate(static_cast<size_t>(config.size()) * sizeof(float));
  UnpackRounded(config.RoundingOf(entry.sequence()).As(DtypeOf(entry)), bytes, gradient.mutable_floats());
  return gradient;
}

void ApplyEntry(const PartitionConfig& config, const v1::LogEntry& entry, Buffer gradient, PartitionState& state) {
  CAIRN_CHECK(entry.version() == state.version + 1, "updates are applied in order");
  state.log_bytes += (gradient.empty() ? 0 : config.GradientBytes(DtypeOf(entry))) + kEntryOverheadBytes;
  if (entry.examples() == 0) {
    state.previous = state.values;
    if (entry.ema_overwrite()) {
      state.values = Buffer::CopyOf(state.values.data(), state.values.size());
      OverwriteWithAverage(config.segments, state.slots.back().floats(), state.values.mutable_floats());
    }
  } else {
    if (!gradient.unique()) gradient = Buffer::CopyOf(gradient.data(), gradient.size());
    Update update;
    update.step = entry.version() - std::min(state.loss_scale.skipped, entry.version() - 1);
    update.examples = entry.examples();
    update.learning_rate = entry.learning_rate();
    update.ema_overwrite = entry.ema_overwrite();
    update.values = state.values.floats();
    update.gradient = gradient.mutable_floats();
    std::vector<Buffer> shared(state.slots.size());  // with an image; alive until they are copied
    for (size_t i = 0; i < shared.size(); ++i) {
      Buffer& slot = state.slots[i];
      if (!slot.unique()) shared[i] = std::exchange(slot, Buffer::Allocate(slot.size()));
      update.slots.push_back(slot.mutable_floats());
      update.copied_from.push_back(shared[i].floats());
    }
    ApplyUpdate(config.optimizer, config.segments, update);
    state.previous = std::exchange(state.values, std::move(gradient));
  }
  state.version = entry.version();
  if (entry.has_figures()) CountFigures(entry.figures(), config.metrics, state.figures);
  state.norms = entry.norms();
  state.previous_loss_scale = state.loss_scale.scale;
  if (config.loss_scale && (entry.not_finite() || entry.examples() > 0)) {
    state.loss_scale.Update(*config.loss_scale, entry.loss_scale(), !entry.not_finite());
  }
  for (uint32_t r = 0; r < entry.replica_count(); ++r) state.sequences[entry.replica_first() + r] = entry.sequence();
}

}  // namespace cairn
