#include "server/core/partition_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/limits.h"

namespace cairn {
namespace {
// key, header and the store's own overhead, so that empty entries count too
constexpr uint64_t kEntryOverheadBytes = 128;
}  // namespace

std::string PartitionSettings::Name() const { return absl::StrCat("job ", job.value, " partition ", partition.value); }

PartitionState PartitionState::Initial(const PartitionConfig& config) {
  PartitionState s;
  s.contents = config.kind->MakeInitial(config);
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
  if (entry.examples() > 0) {
    const absl::Status packed = config.kind->CheckPacked(config, DtypeOf(entry), gradient_bytes);
    if (!packed.ok()) return bad("its gradient ", packed.message());
  } else if (gradient_bytes != 0) {
    return bad("its gradient has ", gradient_bytes,
               " bytes, expected 0: it is damaged, or a cairn-ps of another version wrote it");
  }
  if (entry.norms().size() > kFrameScalarsBytesMax) return bad("norms: ", entry.norms().size(), " bytes");
  if (entry.ema_overwrite() && !config.kind->keeps_average())
    return bad("ema_overwrite, but the job keeps no moving average");
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

void ApplyEntry(const PartitionConfig& config, const v1::LogEntry& entry, Buffer gradient, PartitionState& state) {
  CAIRN_CHECK(entry.version() == state.version + 1, "updates are applied in order");
  state.log_bytes += config.kind->PackedBytes(config, entry, gradient) + kEntryOverheadBytes;
  const uint64_t step = entry.version() - std::min(state.loss_scale.skipped, entry.version() - 1);
  state.contents->Apply(config, entry, step, std::move(gradient));
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
