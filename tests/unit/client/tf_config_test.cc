// Goal: every kind of TF_CONFIG that TensorFlow and TFJob write is understood, each task runs exactly what is written
// here, and errors name the field.
#include "client/cli/tf_config.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cairn {
namespace {

std::string Text(const std::string& cluster, const std::string& task) {
  return absl::StrCat("{\"cluster\": ", cluster, ", \"task\": ", task, ", \"environment\": \"cloud\"}");
}

constexpr char kFull[] =
    R"({"chief": ["job-chief-0.default.svc:2222"], "worker": ["w0:2222", "w1:2222"], "ps": ["10.0.0.7:2222", "ps1:2222"]})";

std::string Lines(const std::string& text, const std::string& coordinator = "") {
  const auto config = ParseTfConfig(text);
  if (!config.ok()) return std::string(config.status().message());
  TfRunOptions options;
  options.bin_dir = "/bin";
  options.dir = "/data";
  options.coordinator = coordinator;
  const auto daemons = DaemonsOf(*config, options);
  if (!daemons.ok()) return std::string(daemons.status().message());
  std::string lines;
  for (const TfDaemon& daemon : *daemons) absl::StrAppend(&lines, absl::StrJoin(daemon.argv, " "), "\n");
  return lines;
}

TEST(TfConfig, EachTaskRunsItsDaemons) {
  EXPECT_EQ(
      Lines(Text(kFull, R"({"type": "ps", "index": 0})")),
      "/bin/cairn-ps --log-level info --coordinator job-chief-0.default.svc:2222 --name ps-0 --data-dir /data/ps-0 "
      "--listen 10.0.0.7:2222\n");
  EXPECT_EQ(
      Lines(Text(kFull, R"({"type": "ps", "index": 1})")),
      "/bin/cairn-ps --log-level info --coordinator job-chief-0.default.svc:2222 --name ps-1 --data-dir /data/ps-1 "
      "--listen 0.0.0.0:2222 --advertise ps1:2222\n");
  EXPECT_EQ(Lines(Text(kFull, R"({"type": "worker", "index": 1})")),
            "/bin/cairn-worker --log-level info --coordinator job-chief-0.default.svc:2222 --name worker-1\n");
  EXPECT_EQ(Lines(Text(kFull, R"({"type": "chief", "index": 0})")),
            "/bin/cairn-coordinator --log-level info --listen 0.0.0.0:2222 --advertise job-chief-0.default.svc:2222 "
            "--data-dir /data/coordinator\n"
            "/bin/cairn-worker --log-level info --coordinator job-chief-0.default.svc:2222 --name chief\n");
  EXPECT_EQ(Lines(Text(kFull, R"({"type": "evaluator", "index": 0})")),
            "/bin/cairn-worker --log-level info --coordinator job-chief-0.default.svc:2222 --name evaluator-0 --role "
            "evaluator\n");
}

TEST(TfConfig, CoordinatorOfTheEnvironment) {
  EXPECT_EQ(Lines(Text(kFull, R"({"type": "chief", "index": 0})"), "c:7070"),
            "/bin/cairn-worker --log-level info --coordinator c:7070 --name chief\n");
  EXPECT_EQ(
      Lines(Text(R"({"ps": ["localhost:1"]})", R"({"type": "ps", "index": 0})"), "c:7070"),
      "/bin/cairn-ps --log-level info --coordinator c:7070 --name ps-0 --data-dir /data/ps-0 --listen localhost:1\n");
}

// The task whose end a TFJob waits for, and the address of the cluster.
TEST(TfConfig, TheHeadIsTheChiefOrElseTheFirstWorker) {
  const auto head = [](const char* cluster, const char* task) {
    return IsHead(ParseTfConfig(Text(cluster, task)).value());
  };
  EXPECT_TRUE(head(kFull, R"({"type": "chief", "index": 0})"));
  EXPECT_FALSE(head(kFull, R"({"type": "worker", "index": 0})"));
  EXPECT_FALSE(head(kFull, R"({"type": "ps", "index": 0})"));
  EXPECT_FALSE(head(kFull, R"({"type": "evaluator", "index": 0})"));
  const char* workers = R"({"worker": ["127.0.0.1:5000", "h:5001"]})";
  EXPECT_TRUE(head(workers, R"({"type": "worker", "index": 0})"));
  EXPECT_FALSE(head(workers, R"({"type": "worker", "index": 1})"));
  const TfConfig config = ParseTfConfig(Text(workers, R"({"type": "worker", "index": 1})")).value();
  TfRunOptions options;
  EXPECT_EQ(CoordinatorOf(config, options), "127.0.0.1:5000");
  options.coordinator = "c:7070";
  EXPECT_EQ(CoordinatorOf(config, options), "c:7070");
  EXPECT_EQ(CoordinatorOf(ParseTfConfig(Text(R"({"ps": ["h:1"]})", R"({"type": "ps", "index": 0})")).value(), {}), "");
}

// As for MultiWorkerMirroredStrategy: workers only. Indices as text and as keys, as some tools write them; "master".
TEST(TfConfig, WorkersWithoutPs) {
  const char* workers = R"({"worker": ["127.0.0.1:5000", "h:5001"]})";
  EXPECT_EQ(Lines(Text(workers, R"({"type": "worker", "index": 0})")),
            "/bin/cairn-coordinator --log-level info --listen 127.0.0.1:5000 --data-dir /data/coordinator\n"
            "/bin/cairn-ps --log-level info --coordinator 127.0.0.1:5000 --name ps-of-worker-0 --data-dir "
            "/data/ps-of-worker-0 --listen 127.0.0.1:0\n"
            "/bin/cairn-worker --log-level info --coordinator 127.0.0.1:5000 --name worker-0\n");
  EXPECT_EQ(Lines(Text(workers, R"({"type": "worker", "index": "1"})")),
            "/bin/cairn-ps --log-level info --coordinator 127.0.0.1:5000 --name ps-of-worker-1 --data-dir "
            "/data/ps-of-worker-1 --listen 0.0.0.0:0 --advertise h\n"
            "/bin/cairn-worker --log-level info --coordinator 127.0.0.1:5000 --name worker-1\n");
  EXPECT_EQ(
      Lines(Text(R"({"master": ["m:1"], "worker": {"3": "w:1"}, "ps": ["p:1"]})", R"({"type": "worker", "index": 3})")),
      "/bin/cairn-worker --log-level info --coordinator m:1 --name worker-3\n");
}

// TFJob's enableDynamicWorker: a worker knows itself and the ps, a ps itself alone.
TEST(TfConfig, TheSparseFormKnowsItsOwnEntries) {
  for (const char* cluster : {"cluster", "sparseCluster"}) {
    const auto lines = [&](const std::string& entries, const std::string& task, const std::string& coordinator = "") {
      return Lines(absl::StrCat("{\"", cluster, "\": ", entries, ", \"task\": ", task, "}"), coordinator);
    };
    const char* ps = R"("ps": ["digits-ps-0.ml.svc:2222", "digits-ps-1.ml.svc:2222"])";
    EXPECT_EQ(lines(absl::StrCat(R"({"worker": {"1": "digits-worker-1.ml.svc:2222"}, )", ps, "}"),
                    R"({"type": "worker", "index": 1})"),
              "/bin/cairn-worker --log-level info --coordinator digits-worker-0.ml.svc:2222 --name worker-1\n");
    EXPECT_EQ(lines(absl::StrCat(R"({"worker": {"0": "digits-worker-0.ml.svc:2222"}, )", ps, "}"),
                    R"({"type": "worker", "index": 0})"),
              "/bin/cairn-coordinator --log-level info --listen 0.0.0.0:2222 --advertise digits-worker-0.ml.svc:2222 "
              "--data-dir "
              "/data/coordinator\n"
              "/bin/cairn-worker --log-level info --coordinator digits-worker-0.ml.svc:2222 --name worker-0\n");
    // The operator writes null if a TFJob has no ps.
    EXPECT_EQ(
        lines(R"({"worker": {"1": "digits-worker-1.ml.svc:2222"}, "ps": null})", R"({"type": "worker", "index": 1})"),
        "/bin/cairn-ps --log-level info --coordinator digits-worker-0.ml.svc:2222 --name ps-of-worker-1 "
        "--data-dir /data/ps-of-worker-1 --listen 0.0.0.0:0 --advertise digits-worker-1.ml.svc\n"
        "/bin/cairn-worker --log-level info --coordinator digits-worker-0.ml.svc:2222 --name worker-1\n");
    const char* one = R"({"worker": {}, "ps": ["digits-ps-1.ml.svc:2222"]})";
    EXPECT_EQ(lines(one, R"({"type": "ps", "index": 1})"),
              "/bin/cairn-ps --log-level info --coordinator digits-worker-0.ml.svc:2222 --name ps-1 --data-dir "
              "/data/ps-1 --listen "
              "0.0.0.0:2222 --advertise digits-ps-1.ml.svc:2222\n");
    EXPECT_EQ(lines(R"({"ps": ["10.0.0.7:2222"]})", R"({"type": "ps", "index": 1})", "c:7070"),
              "/bin/cairn-ps --log-level info --coordinator c:7070 --name ps-1 --data-dir /data/ps-1 --listen "
              "10.0.0.7:2222\n");
    EXPECT_EQ(lines(R"({"ps": ["10.0.0.7:2222"]})", R"({"type": "ps", "index": 1})"),
              "TF_CONFIG: cluster: has neither a chief nor worker 0, next to which the coordinator could run; add one, "
              "or set "
              "CAIRN_COORDINATOR");
  }
}

TEST(TfConfig, Errors) {
  const struct {
    std::string text, error;
  } cases[] = {
      {"{", "TF_CONFIG: is not JSON"},
      {"[]", "TF_CONFIG: is not a JSON object with cluster and task"},
      {"{}", "TF_CONFIG: cluster: is missing"},
      {Text("3", "{}"), "TF_CONFIG: cluster: is not an object of lists of addresses"},
      {Text(R"({"gpu": []})", "{}"), "TF_CONFIG: cluster.gpu: is not one of chief, worker, ps, evaluator"},
      {Text(R"({"worker": "w:1"})", "{}"), "TF_CONFIG: cluster.worker: is not a list of addresses"},
      {Text(R"({"worker": ["w:1", 7]})", "{}"), "TF_CONFIG: cluster.worker[1]: is not text; give host:port"},
      {Text(R"({"worker": ["w"]})", "{}"), "TF_CONFIG: cluster.worker[0]: \"w\" is not a host:port"},
      {Text(R"({"worker": ["w:0"]})", "{}"), "TF_CONFIG: cluster.worker[0]: \"w:0\" is not a host:port"},
      {Text(R"({"ps": [":1"]})", "{}"), "TF_CONFIG: cluster.ps[0]: \":1\" is not a host:port"},
      {Text(R"({"worker": {"one": "w:1"}})", "{}"), "TF_CONFIG: cluster.worker: \"one\" is not an index"},
      {Text(R"({"worker": {"9999": "w:1"}})", "{}"), "TF_CONFIG: cluster.worker: index 9999 is more than 4095"},
      {Text(R"({"chief": ["a:1", "b:1"]})", "{}"), "TF_CONFIG: cluster.chief: has 2 entries, but there is one chief"},
      {Text(R"({"chief": ["a:1"], "master": ["b:1"]})", "{}"),
       "TF_CONFIG: cluster.master: cluster.chief is there too; they are the same"},
      {Text(R"({"ps": ["a:1"], "worker": ["a:1"]})", "{}"), "TF_CONFIG: cluster.worker[0]: a:1 is cluster.ps[0] too"},
      {R"({"cluster": {"worker": ["w:1"]}})", "TF_CONFIG: task: is missing"},
      {Text(R"({"worker": ["w:1"]})", "7"), "TF_CONFIG: task: is not an object with type and index"},
      {Text(R"({"worker": ["w:1"]})", "{}"), "TF_CONFIG: task.type: is missing; give chief, worker, ps or evaluator"},
      {Text(R"({"worker": ["w:1"]})", R"({"type": "gpu"})"),
       "TF_CONFIG: task.type: \"gpu\" is not one of chief, worker, ps, evaluator"},
      {Text(R"({"worker": ["w:1"]})", R"({"type": "worker"})"), "TF_CONFIG: task.index: is missing"},
      {Text(R"({"worker": ["w:1"]})", R"({"type": "worker", "index": "x"})"), "TF_CONFIG: task.index: is not a number"},
      {Text(R"({"worker": ["w:1"]})", R"({"type": "worker", "index": -1})"),
       "TF_CONFIG: task.index: -1 is not within 0 .. 4095"},
      {Text(R"({"worker": ["w:1", "v:1"]})", R"({"type": "worker", "index": 3})"),
       "TF_CONFIG: task.index: 3, but cluster.worker has 2 entries"},
      {Text(R"({"worker": ["w:1"]})", R"({"type": "ps", "index": 0})"),
       "TF_CONFIG: task.type: \"ps\", but there is no cluster.ps"},
      {Text(R"({"ps": ["p:1"]})", R"({"type": "ps", "index": 0})"),
       "TF_CONFIG: cluster: has neither a chief nor worker 0, next to which the coordinator could run; add one, or set "
       "CAIRN_COORDINATOR"},
  };
  for (const auto& c : cases) EXPECT_EQ(Lines(c.text), c.error) << c.text;
}

}  // namespace
}  // namespace cairn
