#include "worker/train/step_probe.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/model/initializer.h"
#include "worker/limits.h"
#include "worker/train/accumulate.h"
#include "worker/train/training_data.h"

namespace cairn {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(100);  // how often the waiting thread looks whether the worker ends

v1::StepProbe NotMeasured(const absl::Status& why) {
  v1::StepProbe none;
  none.set_not_measured(std::string(why.message()));
  return none;
}

// Of the machine; 0: not known.
uint64_t AvailableBytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string name; file >> name;) {
    uint64_t kib = 0;
    if (name == "MemAvailable:" && file >> kib) return kib << 10;
    file.ignore(1 << 10, '\n');
  }
  return 0;
}

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// What the slot measures and the waiting thread takes. Both own it.
class Measurement {
 public:
  Measurement(const v1::JobSpec& spec, const StepProber::Services& services) : spec_(spec), services_(services) {}

  // On a slot.
  void Run(ProgramCache& programs) {
    absl::StatusOr<v1::StepProbe> result = Measure(programs);
    programs.DropGone();
    absl::MutexLock lock(&mutex_);
    result_ = std::move(result);
    done_ = true;
  }

  absl::StatusOr<v1::StepProbe> Wait(absl::Time deadline, const std::atomic<bool>& stopping) {
    absl::MutexLock lock(&mutex_);
    while (!mutex_.AwaitWithTimeout(absl::Condition(&done_), kLook)) {
      if (!stopping && absl::Now() < deadline) continue;
      given_up_ = true;
      return absl::DeadlineExceededError(absl::StrFormat(
          "%d steps, with the opening of the data and the compilation, took longer than a dry run waits",
          kProbeSteps + 1));
    }
    return result_;
  }

 private:
  absl::Status CheckMemory(const Graph& graph) const {
    const uint64_t wanted = 2 * sizeof(float) * static_cast<uint64_t>(graph.space_size());
    const uint64_t room = services_.memory_bytes > 0 ? services_.memory_bytes : AvailableBytes() / 2;
    if (room == 0 || wanted <= room) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrFormat("its variables and their gradients take %d MiB, and half of the memory that is free on the "
                        "worker is %d MiB",
                        wanted >> 20, room >> 20));
  }

  absl::Status CheckWanted() const {
    if (given_up_) return absl::CancelledError("nobody waits for it any more");
    if (!services_.is_idle()) return absl::UnavailableError("the worker computes for other jobs");
    return absl::OkStatus();
  }

  absl::StatusOr<v1::StepProbe> Measure(ProgramCache& programs) {
    CAIRN_RETURN_IF_ERROR(CheckWanted());
    CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<const JobModel> model, MakeJobModel(spec_));
    CAIRN_RETURN_IF_ERROR(CheckMemory(*model->graph));
    CAIRN_ASSIGN_OR_RETURN(const TrainingData data,
                           OpenTrainingData(std::move(model), {}, *services_.datasets, given_up_));
    BatchSourceOptions options;
    options.decode_threads = services_.decode_threads;
    CAIRN_ASSIGN_OR_RETURN(const TrainingBatches batches, MakeTrainingBatches(data, std::move(options)));
    CAIRN_ASSIGN_OR_RETURN(Program * program, programs.Get(batches.model));
    return MeasureSteps(batches, *program);
  }

  absl::StatusOr<v1::StepProbe> MeasureSteps(const TrainingBatches& batches, Program& program) {
    const Graph& graph = *batches.model->graph;
    std::vector<float> values(static_cast<size_t>(graph.space_size())), gradients(values.size());
    InitializeRange(graph, spec_.seed(), 0, absl::MakeSpan(values));
    std::vector<double> step_ms, data_ms;
    v1::StepProbe probe;
    for (int64_t step = 0; step <= kProbeSteps && step < batches.plan.total_steps; ++step) {
      CAIRN_RETURN_IF_ERROR(CheckWanted());
      const absl::Time begin = absl::Now();
      absl::Duration data;
      const PieceBatch batch = [&](int32_t piece) {
        const absl::Time asked = absl::Now();
        absl::StatusOr<Batch> got = batches.source->Get(step, ReplicaId(0), piece);
        data += absl::Now() - asked;
        return got;
      };
      CAIRN_ASSIGN_OR_RETURN(const BatchSums sums,
                             TrainPieces(program, {batches.plan, batch, StepInfoOf(spec_, step, ReplicaId(0))}, values,
                                         absl::MakeSpan(gradients), [](int64_t, int64_t) {}));
      if (step == 0) continue;  // it compiles, allocates and fills caches
      probe.set_examples(std::max(probe.examples(), static_cast<int64_t>(sums.examples)));
      step_ms.push_back(absl::ToDoubleMilliseconds(absl::Now() - begin));
      data_ms.push_back(absl::ToDoubleMilliseconds(data));
    }
    if (step_ms.empty()) return absl::FailedPreconditionError("the job has one step, which would be one to warm up");
    probe.set_steps(static_cast<int32_t>(step_ms.size()));
    probe.set_step_ms(MedianOf(std::move(step_ms)));
    probe.set_data_ms(MedianOf(std::move(data_ms)));
    probe.set_program_bytes(program.memory_bytes());
    return probe;
  }

  const v1::JobSpec spec_;
  const StepProber::Services services_;
  std::atomic<bool> given_up_{false};
  absl::Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::StatusOr<v1::StepProbe> result_ ABSL_GUARDED_BY(mutex_) = absl::UnknownError("");
};

absl::Status CheckMeasurable(const v1::JobSpec& spec) {
  if (spec.model().has_external()) return absl::UnimplementedError("a program computes its steps");
  if (spec.replicas() == 0)
    return absl::FailedPreconditionError(
        "a checkpoint, or the workers that it waits for, decide how many replicas it has");
  return absl::OkStatus();
}

}  // namespace

void StepProber::Probe(const v1::JobSpec& spec, absl::Time deadline, Done done) {
  absl::Status status = CheckMeasurable(spec);
  if (status.ok() && !services_.is_idle()) status = absl::UnavailableError("the worker computes for other jobs");
  if (status.ok() && busy_.exchange(true)) status = absl::UnavailableError("the worker measures another job");
  if (!status.ok()) return done(NotMeasured(status));
  const auto measurement = std::make_shared<Measurement>(spec, services_);
  services_.pool->Submit(ComputePool::Priority::kEvaluation,
                         [measurement](ProgramCache& programs) { measurement->Run(programs); });
  waiting_.Post([this, measurement, deadline, done = std::move(done)] {
    absl::StatusOr<v1::StepProbe> probe = measurement->Wait(deadline, stopping_);
    busy_ = false;
    if (!stopping_) done(probe.ok() ? *std::move(probe) : NotMeasured(probe.status()));
  });
}

void StepProber::Stop() {
  stopping_ = true;
  waiting_.Stop();
}

}  // namespace cairn
