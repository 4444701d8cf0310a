// Goal: a job's replicas run on workers that can compute them, on GPUs before CPUs and never on both at once. If no
// worker can, the job says so at once and starts when one joins. A deterministic job returns to the kind of device on
// which it began.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/coordinator/cluster.h"

namespace cairn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

FakeNode& AddGpu(Cluster& c, const std::string& name, int slots = 1) {
  return c.AddWorker(name, slots, v1::WORKER, v1::GPU);
}

v1::JobSpec Float16() {
  v1::JobSpec spec = Cluster::Spec();
  spec.set_compute_dtype(v1::FLOAT16);
  return spec;
}

// A job that may use any device at any time.
v1::JobSpec Asynchronous() {
  v1::JobSpec spec = Cluster::Spec();
  spec.set_strategy(v1::PARAMETER_SERVER);
  return spec;
}

TEST(ClusterDevices, AJobThatNobodyCanComputeWaitsAndSaysWhy) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(Float16());
  EXPECT_EQ(c.State(id), v1::QUEUED);
  EXPECT_EQ(c.Job(id).reason(),
            "no worker can compute FLOAT16: \"worker-0\" (CPU), \"worker-1\" (CPU); start one that can, or use another "
            "compute_dtype");
  const uint64_t other = c.SubmitOk(c.Spec());
  EXPECT_EQ(c.State(other), v1::RUNNING) << "others need not wait for it";
  AddGpu(c, "gpu-0");
  EXPECT_EQ(c.State(id), v1::RUNNING);
  EXPECT_THAT(c.Assigned("gpu-0", id), ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(c.RunToEnd(id));
  EXPECT_EQ(c.State(id), v1::SUCCEEDED);
}

TEST(ClusterDevices, LosingTheLastThatCanIsSaid) {
  Cluster c(1, 1);
  AddGpu(c, "gpu-0");
  const uint64_t id = c.SubmitOk(Float16());
  c.Train(3);
  c.Kill(c.node("gpu-0"));
  c.Pass(absl::Seconds(5));
  EXPECT_EQ(c.State(id), v1::RUNNING);
  EXPECT_THAT(c.Assigned("worker-0", id), IsEmpty());
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("no worker can compute FLOAT16: \"worker-0\" (CPU)"));
  c.Restart(c.node("gpu-0"));
  EXPECT_TRUE(c.RunToEnd(id));
}

TEST(ClusterDevices, TheWishOfAJob) {
  Cluster c(1, 1);
  v1::JobSpec spec = c.Spec();
  spec.set_device(v1::GPU);
  const uint64_t gpu = c.SubmitOk(spec);
  EXPECT_EQ(c.Job(gpu).reason(),
            "no worker with device GPU can compute it: \"worker-0\" (CPU); start one, or use device: ANY");
  AddGpu(c, "gpu-0");
  EXPECT_THAT(c.Assigned("gpu-0", gpu), ElementsAre(0, 1, 2, 3));
  spec.set_device(v1::CPU);
  const uint64_t cpu = c.SubmitOk(spec);
  EXPECT_THAT(c.Assigned("worker-0", cpu), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(c.Job(cpu).devices(), ElementsAre(v1::CPU));
}

TEST(ClusterDevices, GpusComeFirstAndKindsAreNotMixed) {
  Cluster c(1, 4, /*slots=*/8);
  AddGpu(c, "gpu-0");
  AddGpu(c, "gpu-1");
  const uint64_t id = c.SubmitOk(c.Spec());
  EXPECT_THAT(c.Assigned("gpu-0", id), ElementsAre(0, 1));
  EXPECT_THAT(c.Assigned("gpu-1", id), ElementsAre(2, 3));
  EXPECT_THAT(c.Assigned("worker-0", id), IsEmpty());
  // The next job takes what is free.
  const uint64_t second = c.SubmitOk(c.Spec());
  EXPECT_EQ(c.State(second), v1::RUNNING);
  EXPECT_THAT(c.Assigned("gpu-0", second), IsEmpty());
  // One of two GPUs is lost: the other GPU takes its replicas, not the CPUs.
  c.Kill(c.node("gpu-1"));
  c.Pass(absl::Seconds(1));
  EXPECT_THAT(c.Assigned("gpu-0", id), ElementsAre(0, 1, 2, 3));
}

TEST(ClusterDevices, ReplicasByDefaultAreTheSlotsOfTheKindThatIsUsed) {
  Cluster c(1, 2, /*slots=*/4);
  AddGpu(c, "gpu-0", 2);
  v1::JobSpec spec = c.Spec(0);
  EXPECT_EQ(c.Job(c.SubmitOk(spec)).spec().replicas(), 2);
  spec.set_device(v1::CPU);
  EXPECT_EQ(c.Job(c.SubmitOk(spec)).spec().replicas(), 8);
}

TEST(ClusterDevices, AJobWhoseBitsMatterStaysWhereItBegan) {
  Cluster c(1, 1);
  const uint64_t id = c.SubmitOk(c.Spec());
  c.Train(2);
  AddGpu(c, "gpu-0");
  c.Pass(absl::Seconds(5));
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1, 2, 3));
  // The job goes on with different bits rather than not at all.
  c.Kill(c.node("worker-0"));
  c.Pass(absl::Seconds(1));
  c.Train(1);
  EXPECT_THAT(c.Assigned("gpu-0", id), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(c.Job(id).devices(), ElementsAre(v1::CPU, v1::GPU));
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("computed on CPUs and on GPUs"));
  c.Restart(c.node("worker-0"));
  c.Pass(absl::Seconds(1));
  EXPECT_THAT(c.Assigned("worker-0", id), ElementsAre(0, 1, 2, 3)) << "back on what it began on";
}

TEST(ClusterDevices, AJobWhoseBitsDoNotMatterTakesTheGpuThatComes) {
  Cluster c(1, 2);
  const uint64_t id = c.SubmitOk(Asynchronous());
  c.Train(1);
  AddGpu(c, "gpu-0");
  EXPECT_THAT(c.Assigned("gpu-0", id), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(c.Assigned("worker-0", id), IsEmpty());
  EXPECT_THAT(c.Job(id).reason(), Not(HasSubstr("bits")));
}

TEST(ClusterDevices, ItIsKnownAgainAfterARestart) {
  Cluster c(1, 1);
  AddGpu(c, "gpu-0");
  const uint64_t id = c.SubmitOk(Float16());
  c.Train(2);
  c.RestartCoordinator();
  c.ReconnectAll();
  c.Settle();
  EXPECT_THAT(c.Assigned("gpu-0", id), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(c.Job(id).devices(), ElementsAre(v1::GPU));
  const v1::ListNodesResponse list = c.core().ListNodes();
  const auto gpu = std::find_if(list.nodes().begin(), list.nodes().end(),
                                [](const v1::NodeStatus& node) { return node.name() == "gpu-0"; });
  ASSERT_NE(gpu, list.nodes().end());
  EXPECT_EQ(gpu->device_kind(), v1::GPU);
  EXPECT_THAT(gpu->compute_dtypes(), ElementsAre(v1::FLOAT32, v1::BFLOAT16, v1::FLOAT16));
  EXPECT_TRUE(c.RunToEnd(id));
}

TEST(ClusterDevices, AHelloWithAnotherKindIsRefused) {
  Cluster c(1, 1);
  for (const bool kind : {true, false}) {
    v1::Hello hello = c.node("worker-0").hello;
    hello.set_name("odd");
    hello.set_incarnation(777);
    if (kind) {
      hello.set_device_kind(v1::ANY);
    } else {
      for (int i = 0; i < 17; ++i) hello.add_compute_dtypes(v1::FLOAT32);
    }
    EXPECT_THAT(CheckHello(hello).message(), HasSubstr(kind ? "hello.device_kind: 1 is neither CPU nor GPU"
                                                            : "hello.compute_dtypes: 19 are more than 16"));
  }
}

TEST(ClusterDevices, EvaluatorsThatCannotAreNamed) {
  Cluster c(1, 0);
  AddGpu(c, "gpu-0");
  c.AddWorker("eval-0", 1, v1::EVALUATOR);
  v1::JobSpec spec = Float16();
  spec.set_validation_by(v1::BY_EVALUATOR);
  spec.mutable_checkpoints()->set_dir("/run");
  const uint64_t id = c.SubmitOk(spec);
  EXPECT_THAT(c.Job(id).reason(), HasSubstr("no evaluator can compute FLOAT16: \"eval-0\" (CPU)"));
}

TEST(ClusterDevices, WorkersWithOtherBitsAreWarnedOf) {
  Cluster c(1, 2);
  c.node("worker-0").hello.set_fingerprint("onednn AVX2");
  c.node("worker-1").hello.set_fingerprint("onednn AVX-512");
  for (const char* name : {"worker-0", "worker-1"}) {
    c.Kill(c.node(name));
    c.Restart(c.node(name));
  }
  const uint64_t id = c.SubmitOk(c.Spec());
  EXPECT_THAT(c.Job(id).reason(),
              HasSubstr("workers \"worker-1\" (onednn AVX-512) and \"worker-0\" (onednn AVX2) may differ"));
}

TEST(ClusterDevices, OnlyThoseWhoCanEvaluate) {
  Cluster c(1, 2);
  AddGpu(c, "gpu-0");
  const uint64_t id = c.SubmitOk(Float16());
  c.Train(1);
  c.answer_evaluations = false;
  v1::EvaluateRequest request;
  request.mutable_job()->set_job_id(id);
  const absl::Time deadline = c.clock().Now() + absl::Minutes(10);
  c.Do(EvaluateJob{ReplyToken{90001}, request, deadline});
  c.Settle();
  EXPECT_EQ(c.node("gpu-0").shards.size(), 1u);
  EXPECT_TRUE(c.node("worker-0").shards.empty());
  c.Kill(c.node("gpu-0"));
  c.Pass(absl::Seconds(1));
  c.Do(EvaluateJob{ReplyToken{90002}, request, deadline});
  ASSERT_NE(c.ReplyTo(ReplyToken{90002}), nullptr);
  EXPECT_THAT(c.ReplyTo(ReplyToken{90002})->status.message(), HasSubstr("no worker can compute FLOAT16"));
}

TEST(ClusterDevices, TheChiefTellsTheLossScale) {
  Cluster c(1, 0);
  AddGpu(c, "gpu-0");
  AddGpu(c, "gpu-1");
  const uint64_t id = c.SubmitOk(Float16());
  const auto say = [&](const char* node, float scale) {
    v1::NodeMessage message;
    v1::JobProgress& progress = *message.mutable_heartbeat()->add_progress();
    progress.set_job_id(id);
    progress.set_generation(c.Job(id).generation());
    progress.set_loss_scale(scale);
    c.Say(c.node(node), message);
  };
  say("gpu-0", 65536);
  say("gpu-1", 4);
  EXPECT_EQ(c.Job(id).loss_scale(), 65536);
  say("gpu-0", -1);
  EXPECT_EQ(c.Job(id).loss_scale(), 65536) << "which is none";
}

}  // namespace
}  // namespace cairn
