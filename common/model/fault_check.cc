#include "common/model/fault_check.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/bad.h"
#include "common/base/limits.h"
#include "common/model/job_check.h"
#include "common/model/job_outputs.h"
#include "common/model/limits.h"
#include "common/model/metric_sums.h"

namespace cairn {
namespace {

constexpr int32_t kKeepMaxDefault = 3;

bool Replicates(v1::Durability durability) {
  return durability == v1::REPLICATED || durability == v1::LOGGED_AND_REPLICATED;
}

absl::Status CheckDurability(v1::JobSpec* spec, std::vector<std::string>* warnings) {
  if (!v1::Durability_IsValid(spec->durability())) {
    return Bad("durability: ", static_cast<int>(spec->durability()),
               " is not known; use LOGGED, SNAPSHOT, REPLICATED or LOGGED_AND_REPLICATED");
  }
  if (spec->backups() < 0 || spec->backups() > kBackupsMax) {
    return Bad("backups: ", spec->backups(), " is not within 0 .. ", kBackupsMax, "; use 1, or 0 for none");
  }
  const std::string durability = v1::Durability_Name(spec->durability());
  if (Replicates(spec->durability())) {
    if (spec->has_backups() && spec->backups() == 0) {
      return Bad("durability: ", durability, " needs backups, but backups is 0; set backups: 1, or durability: LOGGED");
    }
    if (!spec->has_backups()) spec->set_backups(1);
  } else if (spec->durability() != v1::DURABILITY_UNSPECIFIED) {
    if (spec->backups() > 0) {
      return Bad("durability: ", durability, " does not wait for the ", spec->backups(), " backups; set durability: ",
                 spec->durability() == v1::LOGGED ? "LOGGED_AND_REPLICATED" : "REPLICATED", ", or backups: 0");
    }
    spec->set_backups(0);
  } else if (spec->has_backups()) {
    spec->set_durability(spec->backups() > 0 ? v1::REPLICATED : v1::LOGGED);
  }
  if (spec->fsync() && (spec->durability() == v1::SNAPSHOT || spec->durability() == v1::REPLICATED)) {
    warnings->push_back(absl::StrCat("fsync: it has no effect with durability ",
                                     v1::Durability_Name(spec->durability()),
                                     ", which writes no log before the reply"));
  }
  return absl::OkStatus();
}

absl::Status CheckBackupReplicas(const v1::JobSpec& spec) {
  const int32_t dropped = spec.backup_replicas();
  if (dropped == 0) return absl::OkStatus();
  if (dropped < 0) return Bad("backup_replicas: ", dropped, " is negative; use 0 or more");
  if (!IsSynchronous(spec)) {
    return Bad("backup_replicas: only for synchronous jobs, where slow replicas delay a step; leave it out");
  }
  if (spec.strategy() == v1::MIRRORED) {
    return Bad(
        "backup_replicas: strategy MIRRORED computes all replicas on one worker, so that none is late; leave it "
        "out, or use MULTI_WORKER_MIRRORED");
  }
  if (spec.replicas() != 0 && dropped >= spec.replicas()) {
    return Bad("backup_replicas: ", dropped, " of ", spec.replicas(),
               " replicas would leave none whose gradient counts; use fewer, or more replicas");
  }
  return absl::OkStatus();
}

absl::Status CheckMonitor(const v1::JobSpec& spec) {
  const std::string& monitor = spec.checkpoints().save_best();
  std::vector<std::string> known{"loss"};
  for (int i = 0; i < FigureCount(spec); ++i) known.push_back(MetricName(spec, i));
  const std::string base(absl::StripPrefix(monitor, "val_"));
  if (std::find(known.begin(), known.end(), base) != known.end()) return absl::OkStatus();
  return Bad("checkpoints.save_best: \"", monitor.substr(0, 64), "\" is not a figure of this job; use one of ",
             absl::StrJoin(known, ", "), ", with val_ before it for the validation split");
}

absl::Status CheckCheckpoints(v1::JobSpec* spec) {
  if (!spec->has_checkpoints()) return absl::OkStatus();
  v1::Checkpoints& c = *spec->mutable_checkpoints();
  if (c.dir().empty()) return Bad("checkpoints.dir: missing; give a directory that all workers share");
  if (c.dir().size() > kPathBytesMax) {
    return Bad("checkpoints.dir: longer than ", kPathBytesMax, " bytes; use a shorter one");
  }
  if (c.every_steps() == 0 && c.every_epochs() == 0 && c.every_minutes() == 0) c.set_every_epochs(1);
  if (c.keep_max() > kCheckpointsKeptMax) {
    return Bad("checkpoints.keep_max: ", c.keep_max(), " is not within 1 .. ", kCheckpointsKeptMax, "; use 3, say");
  }
  if (!c.has_keep_max()) c.set_keep_max(kKeepMaxDefault);
  if (!v1::Checkpoints::Mode_IsValid(c.mode())) {
    return Bad("checkpoints.mode: ", static_cast<int>(c.mode()), " is not known; use MIN, MAX, or leave it out");
  }
  if (c.save_best().empty()) {
    if (c.mode() == v1::Checkpoints::MODE_UNSPECIFIED) return absl::OkStatus();
    return Bad("checkpoints.mode: it says what is best, but checkpoints.save_best names no figure; set both");
  }
  CAIRN_RETURN_IF_ERROR(CheckMonitor(*spec));
  if (c.every_epochs() == 0) c.set_every_epochs(1);  // figures exist per epoch
  if (c.mode() == v1::Checkpoints::MODE_UNSPECIFIED) {
    c.set_mode(MoreIsBetter(*spec, c.save_best()) ? v1::Checkpoints::MAX : v1::Checkpoints::MIN);
  }
  return absl::OkStatus();
}

absl::Status CheckStart(const v1::JobSpec& spec) {
  for (const auto& [field, path] :
       {std::pair("resume_from", &spec.resume_from()), std::pair("initial_weights", &spec.initial_weights())}) {
    if (path->size() > kPathBytesMax) return Bad(field, ": longer than ", kPathBytesMax, " bytes; use a shorter path");
  }
  if (spec.initial_weights_skip_size() > 0 && spec.initial_weights().empty()) {
    return Bad(
        "initial_weights_skip: it says what initial_weights leaves out, but there are none; set both or neither");
  }
  if (spec.resume_from().empty() || spec.initial_weights().empty()) return absl::OkStatus();
  return Bad("initial_weights: a job that resumes from resume_from gets its weights from there; set only one of them");
}

}  // namespace

bool LogsBeforeReply(v1::Durability durability) { return durability != v1::SNAPSHOT && durability != v1::REPLICATED; }

bool IsSynchronous(const v1::JobSpec& spec) {
  return spec.strategy() != v1::PARAMETER_SERVER || (spec.has_staleness_bound() && spec.staleness_bound() == 0);
}

absl::Status CheckFaultTolerance(v1::JobSpec* spec, std::vector<std::string>* warnings) {
  CAIRN_RETURN_IF_ERROR(CheckDurability(spec, warnings));
  CAIRN_RETURN_IF_ERROR(CheckBackupReplicas(*spec));
  CAIRN_RETURN_IF_ERROR(CheckCheckpoints(spec));
  return CheckStart(*spec);
}

void ResolveBackups(int ps_alive, v1::JobSpec* spec) {
  if (!spec->has_backups()) spec->set_backups(ps_alive >= 2 ? kBackupsDefault : 0);
  if (spec->durability() == v1::DURABILITY_UNSPECIFIED) {
    spec->set_durability(spec->backups() > 0 ? v1::REPLICATED : v1::LOGGED);
  }
}

}  // namespace cairn
