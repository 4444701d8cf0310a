// bench_scale: what a cluster of thousands of nodes costs its coordinator. A ladder of sizes shows what grows faster
// than the cluster. The nodes are simulated (scale_cluster.h), the coordinator is the production ClusterDriver with its
// core: processor time does not depend on the machine's other work, and virtual time not on the machine.
//
//   bench_scale                             all sizes
//   bench_scale --ps 1000 --workers 10000 --jobs 200
//   bench_scale --ps 1000 --workers 1024 --parameters 65000000000 --partition-mib 64    one large job
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "tests/bench/scale_cluster.h"

namespace cairn::bench {
namespace {

struct Size {
  int ps = 0, workers = 0, jobs = 0;
};

constexpr absl::Duration kSteady = absl::Seconds(10);
constexpr absl::Duration kJoining = absl::Seconds(10), kRejoining = absl::Seconds(1);
constexpr absl::Duration kMost = absl::Seconds(600);

// ---- jobs ----

v1::JobSpec JobOf(const std::string& name, int replicas, const std::vector<int64_t>& units, int64_t partition_bytes) {
  v1::JobSpec spec;
  spec.set_name(name);
  spec.set_strategy(v1::MULTI_WORKER_MIRRORED);
  spec.mutable_model()->add_layers()->mutable_input()->add_shape(kScaleInputs);
  for (const int64_t n : units) spec.mutable_model()->add_layers()->mutable_dense()->set_units(static_cast<int32_t>(n));
  spec.mutable_model()->add_layers()->mutable_dense()->set_units(kScaleClasses);
  spec.mutable_data()->set_path("/data");
  spec.mutable_loss()->set_kind(v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY);
  spec.mutable_loss()->set_from_logits(true);
  spec.mutable_optimizer()->mutable_sgd();
  spec.set_replicas(replicas);
  spec.set_batch_size(kScaleBatch);
  spec.set_epochs(1000);
  spec.set_backups(1);
  if (partition_bytes > 0) spec.set_partition_bytes(partition_bytes);
  return spec;
}

// About 100 partitions.
v1::JobSpec UsualJob(int number, int replicas) {
  return JobOf(absl::StrFormat("job-%d", number), replicas, {2000, 2000}, 160 << 10);
}

// ---- phases ----

void Print(const char* what, ScaleMeter& meter, absl::Duration time, const std::string& more = "") {
  std::printf("  %-34s %8.3f s of CPU, %7.1f s of the cluster's time, longest piece %8.1f ms%s%s\n", what,
              meter.Seconds(), absl::ToDoubleSeconds(time), 1000 * meter.Longest(), more.empty() ? "" : "; ",
              more.c_str());
  std::fflush(stdout);
  meter.Reset();
}

void Steady(ScaleCluster& cluster) {
  ScaleMeter& meter = cluster.meter();
  cluster.RunFor(absl::Seconds(6));  // windows of rates are full
  meter.Reset();
  cluster.RunFor(kSteady);
  const double seconds = absl::ToDoubleSeconds(kSteady);
  std::string parts;
  const auto add = [&](const char* name, Work work) {
    absl::StrAppendFormat(&parts, "%s%s %.2f %% (%.0f/s)", parts.empty() ? "" : ", ", name,
                          100 * meter.Seconds(work) / seconds, static_cast<double>(meter.Times(work)) / seconds);
  };
  add("decoding", Work::kDecode);
  add("heartbeats", Work::kHeartbeat);
  add("reports", Work::kReport);
  add("figures", Work::kFigures);
  add("ticks", Work::kTick);
  add("others", Work::kOther);
  add("encoding", Work::kEncode);
  std::printf("  steady: %.1f %% of a core: %s\n", 100 * meter.Seconds() / seconds, parts.c_str());
  Print("steady", meter, kSteady);
}

void LoseRack(ScaleCluster& cluster, int jobs) {
  cluster.LoseRack(0);
  const auto promoted = cluster.RunUntil([&] { return cluster.JobsServed(false) == jobs; }, kMost);
  Print("a rack is lost, all promoted", cluster.meter(), promoted);
  const auto copied = cluster.RunUntil([&] { return cluster.JobsServed(true) == jobs; }, kMost);
  Print("then until all copies are made", cluster.meter(), copied);
}

void LoseCoordinator(ScaleCluster& cluster, int jobs) {
  const size_t bytes = cluster.EndCoordinator();
  std::printf("  state: %.1f MiB in memory, %.1f MiB stored\n", static_cast<double>(bytes) / (1 << 20),
              static_cast<double>(cluster.StoredBytes()) / (1 << 20));
  cluster.meter().Reset();
  cluster.StartCoordinator();
  Print("another coordinator reads the state", cluster.meter(), absl::ZeroDuration());
  cluster.JoinAll(kRejoining);
  const auto time = cluster.RunUntil([&] { return cluster.JobsServed(false) == jobs; }, kMost);
  Print("and all nodes come to it", cluster.meter(), kRejoining + time);
}

void Measure(const Size& size, const ScaleOptions& common) {
  ScaleOptions options = common;
  options.ps = size.ps;
  options.workers = size.workers;
  std::printf("%d ps, %d workers, %d jobs\n", size.ps, size.workers, size.jobs);
  ScaleCluster cluster(options);
  cluster.meter().Reset();
  cluster.JoinAll(kJoining);
  Print("all nodes join", cluster.meter(), kJoining);
  absl::Duration time;
  for (int j = 0; j < size.jobs; ++j) {
    cluster.Submit(UsualJob(j, std::min(kReplicasMax, size.workers / size.jobs)));
    cluster.RunFor(absl::Milliseconds(20));
    time += absl::Milliseconds(20);
  }
  time += cluster.RunUntil([&] { return cluster.JobsServed(true) == size.jobs; }, kMost);
  Print("all jobs are placed and run", cluster.meter(), time);
  Steady(cluster);
  LoseRack(cluster, size.jobs);
  LoseCoordinator(cluster, size.jobs);
}

// A job of `parameters`, most of them in square layers.
void MeasureLargest(const Size& size, const ScaleOptions& common, int64_t parameters, int64_t partition_bytes) {
  ScaleOptions options = common;
  options.ps = size.ps;
  options.workers = size.workers;
  ScaleCluster cluster(options);
  cluster.JoinAll(kJoining);
  constexpr int64_t kSide = 50000;
  std::vector<int64_t> units(static_cast<size_t>(parameters / (kSide * kSide)) + 1, kSide);
  cluster.meter().Reset();
  const uint64_t sent = cluster.sent_bytes();
  cluster.Submit(JobOf("largest", std::min(kReplicasMax, size.workers), units, partition_bytes));
  const auto time = cluster.RunUntil([&] { return cluster.JobsServed(false) == 1; }, kMost);
  const v1::JobStatus job = cluster.Job(1);
  Print("the largest job is placed and runs", cluster.meter(), time,
        absl::StrFormat("%d parameters, %d partitions of %d KiB, %d replicas, %.0f MiB sent", job.parameters(),
                        job.partitions_size(), job.spec().partition_bytes() >> 10, job.replicas_size(),
                        static_cast<double>(cluster.sent_bytes() - sent) / (1 << 20)));
  cluster.RunUntil([&] { return cluster.JobsServed(true) == 1; }, kMost);
  cluster.meter().Reset();
  cluster.LoseRack(0);
  const auto promoted = cluster.RunUntil([&] { return cluster.JobsServed(false) == 1; }, kMost);
  Print("a rack is lost, all promoted", cluster.meter(), promoted);
}

}  // namespace
}  // namespace cairn::bench

int main(int argc, char** argv) {
  using namespace cairn::bench;  // NOLINT
  CLI::App app{"What a cluster of thousands of nodes costs its coordinator, by simulated nodes on virtual time."};
  Size one;
  ScaleOptions options;
  int64_t parameters = 0, partition_mebibytes = 8;
  int step_ms = 200;
  app.add_option("--ps", one.ps, "One size alone: so many ps");
  app.add_option("--workers", one.workers, "so many workers");
  app.add_option("--jobs", one.jobs, "and jobs");
  app.add_option("--rack", options.rack, "ps that are lost at once")->capture_default_str();
  app.add_option("--step-ms", step_ms, "of a training step")->capture_default_str();
  app.add_option("--parameters", parameters, "One job of so many parameters instead");
  app.add_option("--partition-mib", partition_mebibytes, "its partitions")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  options.step = absl::Milliseconds(step_ms);
  cairn::SilenceLog();
  std::vector<Size> ladder = {{100, 1000, 20}, {300, 3000, 60}, {1000, 10000, 200}};
  if (one.ps > 0) ladder = {one};
  for (const Size& size : ladder) {
    if (parameters > 0) {
      MeasureLargest(size, options, parameters, partition_mebibytes << 20);
    } else {
      Measure(size, options);
    }
  }
  return 0;
}
