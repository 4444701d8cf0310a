#include "client/cli/dry_run.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/model/optimizer_slots.h"
#include "common/report/figures.h"

namespace cairn {
namespace {

constexpr int64_t kBytesOfNumber = 4;

struct Memory {
  int64_t ps = 0;      // of all ps together
  int64_t worker = 0;  // of a worker that computes one replica
};

// 4 P (1 + s)(1 + B) + 4 P W, where each replica may be on a worker of its own, and 4 P (2 + r) with r = 1.
Memory MemoryOf(const v1::JobStatus& job) {
  const int64_t bytes = job.parameters() * kBytesOfNumber;
  const auto slots = static_cast<int64_t>(SlotNames(job.spec().optimizer()).size());
  const int64_t workers = std::max(1, job.spec().replicas());
  return {.ps = bytes * (1 + slots) * (1 + job.spec().backups()) + bytes * workers, .worker = bytes * 3};
}

// Seconds of an epoch's steps, where each slot computes one replica after the other; 0: not known.
double EpochSecondsAtLeast(const v1::JobStatus& job) {
  const v1::StepProbe& probe = job.probe();
  if (!probe.not_measured().empty() || probe.slots() <= 0) return 0;
  const int64_t replicas = std::max(1, job.spec().replicas());
  const int64_t slots = std::min<int64_t>(replicas, probe.slots());
  const int64_t turns = (replicas + slots - 1) / slots;
  return static_cast<double>(job.steps_per_epoch() * turns) * probe.step_ms() / 1000;
}

std::string Count(int64_t n) { return Thousands(static_cast<uint64_t>(std::max<int64_t>(0, n))); }

}  // namespace

std::string DryRunText(const v1::JobStatus& job) {
  const v1::JobSpec& spec = job.spec();
  std::string text = absl::StrFormat("job \"%s\" could be submitted; nothing was\n", spec.name());
  const auto line = [&text](const char* name, const std::string& value) {
    absl::StrAppendFormat(&text, "  %-11s %s\n", name, value);
  };
  line("start", job.reason().empty() ? "at once, if no other job waits" : job.reason());
  line("model",
       absl::StrFormat("%s parameters (%s trainable)", Count(job.parameters()), Count(job.trainable_parameters())));
  if (job.has_data()) {
    line("data", absl::StrFormat("%s train, %s validation, %s test examples", Thousands(job.data().train_examples()),
                                 Thousands(job.data().validation_examples()), Thousands(job.data().test_examples())));
  } else {
    line("data", "not looked at: no worker is alive");
  }
  if (job.total_steps() > 0) {
    line("steps",
         absl::StrFormat("%s in %s", Count(job.total_steps()),
                         absl::StrFormat("%s of %s", CountText(spec.epochs(), "epoch"), Count(job.steps_per_epoch()))));
  }
  if (spec.replicas() > 0) line("replicas", absl::StrFormat("%d, batch %d", spec.replicas(), spec.batch_size()));
  if (job.partitions_size() > 0) {
    line("partitions", absl::StrFormat("%d, each with %s", job.partitions_size(), CountText(spec.backups(), "backup")));
  }
  const Memory memory = MemoryOf(job);
  line("memory", absl::StrFormat("all ps: at most %s (values and %s, of every copy; a gradient of each worker)",
                                 ShortBytes(static_cast<uint64_t>(memory.ps)),
                                 CountText(static_cast<int>(SlotNames(spec.optimizer()).size()), "optimizer slot")));
  line("", absl::StrFormat("a worker: %s for each replica, and the activations of its part of the batch",
                           ShortBytes(static_cast<uint64_t>(memory.worker))));
  if (!job.has_probe()) return text;
  const v1::StepProbe& probe = job.probe();
  if (!probe.not_measured().empty()) {
    line("time", absl::StrCat("not measured: ", probe.not_measured()));
    return text;
  }
  line("", absl::StrFormat("there, as measured: %s", ShortBytes(probe.program_bytes())));
  line("time",
       absl::StrFormat("a replica's step: %.3g ms for %s, %.2g ms of it waiting for data (median of %d on \"%s\")",
                       probe.step_ms(), CountText(probe.examples(), "example"), probe.data_ms(), probe.steps(),
                       probe.worker()));
  if (const double seconds = EpochSecondsAtLeast(job); seconds > 0) {
    line("", absl::StrFormat("an epoch: at least %s with the %s that there are; the exchange with the ps comes on top",
                             ShortDuration(absl::Seconds(seconds)), CountText(probe.slots(), "slot")));
  }
  return text;
}

std::string DryRunJson(const v1::SubmitResponse& checked) {
  const v1::JobStatus& job = checked.job();
  const Memory memory = MemoryOf(job);
  std::string spec;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  nlohmann::ordered_json spec_json;
  if (google::protobuf::util::MessageToJsonString(job.spec(), &spec, options).ok())
    spec_json = nlohmann::ordered_json::parse(spec, nullptr, false);
  nlohmann::ordered_json object = {
      {"name", job.spec().name()},
      {"would_wait_for", job.reason()},
      {"parameters", job.parameters()},
      {"trainable_parameters", job.trainable_parameters()},
      {"steps_per_epoch", job.steps_per_epoch()},
      {"total_steps", job.total_steps()},
      {"replicas", job.spec().replicas()},
      {"partitions", job.partitions_size()},
      {"ps_memory_bytes", memory.ps},
      {"worker_memory_bytes", memory.worker},
      {"warnings", std::vector<std::string>(checked.warnings().begin(), checked.warnings().end())},
      {"spec", spec_json}};
  if (const v1::StepProbe& probe = job.probe(); job.has_probe() && probe.not_measured().empty()) {
    object["probe"] = {{"worker", probe.worker()},     {"steps", probe.steps()},
                       {"examples", probe.examples()}, {"step_ms", probe.step_ms()},
                       {"data_ms", probe.data_ms()},   {"program_bytes", probe.program_bytes()},
                       {"slots", probe.slots()},       {"epoch_seconds_at_least", EpochSecondsAtLeast(job)}};
  } else if (job.has_probe()) {
    object["probe"] = {{"not_measured", probe.not_measured()}};
  }
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace cairn
